"""The shipped system against the theorems: real frames through `desketch.fed`, default layouts, every codec.

Three questions. Does what comes back over the wire have the mean and the second moment that ``thm:enc_dec`` promises?
Is the step of a round the one of ``lem:update_rule``? Do whole runs stay below the bounds?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from desketch.keys import Key
from desketch.sketches import draw
from desketch.verify.checks import CASES, Case, compared_rounds
from desketch.verify.noise import Rounded, rounded, wire_alpha
from desketch.verify.objectives import KnownObjective
from desketch.verify.rows import WIDE, Row, identity_row, one_round_row, sampled_row
from desketch.verify.shipped import Path, Route, through_the_wire, train
from desketch.verify.simulate import Trace, measure

__all__ = ["check_federation", "check_update_rule", "check_wire"]

Array = np.ndarray[Any, np.dtype[Any]]
_BIAS = 0.02  # of |g|: what a code may be off by, beyond what the draws resolve
_SINGLE = 1e-6 / 1e-9  # identities of float32 arithmetic, in units of those of float64


def check_wire(wire: Route, *, rounds: int, key: Key) -> Iterator[Row]:
    """``thm:enc_dec`` over the wire: unbiased, and a second moment within 1 + alpha of sketch and codec together."""
    names, vectors = zip(*_vectors(wire.d).items(), strict=True)
    back = through_the_wire(wire, np.stack(vectors), rounds=rounds, key=key).astype(np.float64)
    for name, g, received in zip(names, vectors, back, strict=True):
        setting = f"{name}, {_size(wire)}"
        yield _bias(setting, wire.family, received - g)
        energy = (received**2).sum(1)
        bound = np.full_like(energy, 1 + wire_alpha(wire, 1))
        yield one_round_row("thm:enc_dec (over the wire)", setting, wire.family, energy, bound, corrected=True)


def _vectors(d: int) -> dict[str, Array]:
    """Vectors of norm one, from concentrated to spread."""
    i = np.arange(d)
    raw = {
        "one-hot g": (i == d - 1).astype(float),
        "g = (1, 1/2, 0, ...)": np.where(i < 2, 1.0 / (1 + i), 0.0),
        "g = 2^-i": 0.5 ** np.minimum(i, 60),
        "g = 1/i": 1.0 / (1 + i),
        "block-constant g": (i < 64).astype(float),
        "Gaussian g": np.random.default_rng(6).standard_normal(d),
    }
    return {name: g / np.linalg.norm(g) for name, g in raw.items()}


def _bias(setting: str, family: str, errors: Array) -> Row:
    """|E error|² without bias of its own: the mean product of two different draws, within its standard error."""
    n = len(errors)
    products = (errors @ errors.T)[~np.eye(n, dtype=bool)]
    squared = float(products.mean())
    resolution = WIDE * float(np.sqrt(2 * (products**2).mean() / (n * (n - 1))))
    limit = _BIAS**2 + resolution
    setting = f"{setting}: |E - g| resolved to {np.sqrt(limit):.1%} of |g|"
    ratio = max(squared, 0.0) / limit
    return Row("thm:enc_dec (unbiased over the wire)", setting, family, ratio, ratio <= 1, True, "sampled")


def check_update_rule(objective: KnownObjective, wire: Route, *, K: int, rounds: int, key: Key) -> Iterator[Row]:
    """``lem:update_rule`` between the iterates of a shipped run, with R_t drawn here; exact codec only."""
    eta = 1 / (8 * objective.problem.L * K)
    path = train(objective, wire, eta=eta, K=K, rounds=rounds, key=key)
    error, scale = np.empty(rounds), np.empty(rounds)
    for t in range(1, rounds + 1):
        w, after = path.W[t - 1], path.W[t]
        U = np.broadcast_to(w, (objective.N, 1, wire.d))
        total = np.zeros(wire.d)
        for _ in range(K):
            gradients = objective.gradients(U)
            total, U = total + gradients.mean((0, 1)), U - eta * gradients
        R = draw(wire.family, d=wire.d, b=wire.b, key=key.fold_in("round", t))
        h = total - R.desketch(R.sketch(total))  # (I - desk_t sk_t)(sum of the mean gradients)
        error[t - 1] = np.abs(after - (U.mean((0, 1)) + eta * h)).max()
        scale[t - 1] = np.abs(w).max() + eta * np.abs(h).max()
    setting = f"{objective.setting}, K={K}, {_size(wire)}"
    yield identity_row("lem:update_rule, shipped", setting, wire.family, error, scale * _SINGLE)


def check_federation(
    objective: KnownObjective,
    wire: Route,
    *,
    K: int,
    rounds: int,
    seeds: int,
    key: Key,
    cases: tuple[Case, ...] = CASES,
) -> Iterator[Row]:
    """Those of ``cases`` that cover the run, on runs of `desketch.fed`."""
    traces: dict[float, Trace] = {}
    for case in cases:
        covered = rounded(case.statement, objective, wire, K) if case.applies(objective.problem, K) else None
        if covered is None:
            continue
        eta = float(case.eta(objective.problem, covered.alpha, K))
        if eta not in traces:
            keys = [key.fold_in("run", s) for s in range(seeds)]
            traces[eta] = _trace(objective, [train(objective, wire, eta=eta, K=K, rounds=rounds, key=k) for k in keys])
        yield _compare(case, covered, objective, wire, traces[eta], K=K, eta=eta, rounds=rounds)


def _compare(
    case: Case,
    covered: Rounded,
    objective: KnownObjective,
    wire: Route,
    trace: Trace,
    *,
    K: int,
    eta: float,
    rounds: int,
) -> Row:
    statement = case.statement
    bound = np.array([covered.bound(eta=eta, T=t) for t in compared_rounds(rounds)])
    samples = case.samples(case.measured(trace))
    setting = f"{objective.setting}, K={K}, eta=1/({case.divisor}(1+alpha)LK), {_size(wire)}"
    corrected = statement.form == "corrected"
    return sampled_row(f"{statement.label}, shipped", setting, wire.family, samples, bound, corrected=corrected)


def _trace(objective: KnownObjective, paths: list[Path]) -> Trace:
    """What the theorems speak of, of runs that end after equally many rounds."""
    W = np.stack([path.W for path in paths], 1)
    local = np.stack([path.local_means for path in paths], 1)
    count = np.arange(1, len(W) + 1)[:, None, None]
    local_mean = np.concatenate([W[:1], np.cumsum(local, 0) / count[:-1]])
    round_mean = np.cumsum(W, 0) / count
    rows = [measure(objective, *row) for row in zip(W, local_mean, round_mean, strict=True)]
    return Trace(*(np.stack(column) for column in zip(*rows, strict=True)))


def _size(wire: Route) -> str:
    return f"{wire.codec}, d={wire.d}, b={wire.b}"
