"""The whole verification at two sizes: a list of named steps, each a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from desketch.keys import Key
from desketch.theory.embedding import FAMILIES
from desketch.verify.checks import CASES, LONGEST, check_curved, check_exact, check_runs
from desketch.verify.corollaries import check_communication, check_linear_rate
from desketch.verify.embeddings import check_moments, check_tails
from desketch.verify.end_to_end import check_federation, check_update_rule, check_wire
from desketch.verify.lemmas import check_lemmas
from desketch.verify.objectives import KnownObjective, Quadratic, large_objectives, objectives
from desketch.verify.refutations import refute
from desketch.verify.rows import Row
from desketch.verify.shipped import Route
from desketch.verify.simulate import Draws, draw_sketches
from desketch.verify.weights import check_weights
from desketch.wire import CODEC_TABLE

__all__ = ["FULL", "QUICK", "Scale", "Step", "steps", "verify"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is run.

    Simulated: ``seeds`` runs per family of ``rounds`` rounds at size d, b; lemmas on the first ``lemma_rounds``; exact
    recursions of ``exact_rounds``. Shipped: at ``shipped_d``, ``shipped_b``, where every family has its default layout
    (sparse2 needs 256 rows for it), ``shipped_seeds`` runs of ``shipped_rounds``, and ``messages`` over the wire.
    ``thorough`` ships every objective with every codec, and f32 at every step size, not one in turn at the longest.
    """

    d: int = 24
    b: int = 8
    seeds: int
    rounds: int
    lemma_rounds: int
    exact_rounds: int
    local_steps: tuple[int, ...] = (1, 5, 20)
    shipped_d: int = 700
    shipped_b: int = 256
    shipped_seeds: int
    shipped_rounds: int
    shipped_steps: tuple[int, ...] = (1, 5)
    messages: int
    thorough: bool


QUICK = Scale(
    seeds=16,
    rounds=50,
    lemma_rounds=10,
    exact_rounds=150,
    shipped_seeds=6,
    shipped_rounds=6,
    messages=40,
    thorough=False,
)
FULL = Scale(
    seeds=48,
    rounds=150,
    lemma_rounds=40,
    exact_rounds=1500,
    shipped_seeds=8,
    shipped_rounds=12,
    messages=200,
    thorough=True,
)


class Step(NamedTuple):
    """A part of the verification: what it is called while it runs, and its rows."""

    name: str
    rows: Callable[[], Iterator[Row]]


def verify(scale: Scale, *, seed: int = 2023, progress: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Every check, then every counter-example."""
    plan = steps(scale, seed=seed)
    for i, step in enumerate(plan, 1):
        progress(f"{i}/{len(plan)} {step.name}")
        yield from step.rows()


def steps(scale: Scale, *, seed: int = 2023) -> list[Step]:
    """The parts, in order; the simulated runs share one set of sketches, drawn when the first of them is run."""
    key, size = Key(seed).fold_in("verify"), {"d": scale.d, "b": scale.b}

    @cache
    def draws() -> Draws:
        return draw_sketches(FAMILIES, **size, seeds=scale.seeds, rounds=scale.rounds, key=key)

    return [
        Step("moments of a sketch", lambda: check_moments(draws())),
        Step("tails of a sketch", lambda: check_tails(draws())),
        Step("weighted sketches", lambda: check_weights(draws())),
        *(step for o in objectives(scale.d) for K in scale.local_steps for step in _simulated(scale, draws, o, K)),
        *(
            Step(f"curved alpha, K={K}", partial(check_curved, FAMILIES, **size, K=K, rounds=scale.exact_rounds))
            for K in scale.local_steps
        ),
        *_corollaries(scale),
        *_shipped(scale, key.fold_in("shipped")),
        Step("counter-examples", lambda: refute(draws())),
    ]


def _simulated(scale: Scale, draws: Callable[[], Draws], objective: KnownObjective, K: int) -> Iterator[Step]:
    def lemmas() -> Iterator[Row]:
        return check_lemmas(objective, replace(draws(), R=draws().R[:, : scale.lemma_rounds]), K=K)

    name = f"{objective.setting}, K={K}"
    yield Step(f"theorems: {name}", lambda: check_runs(objective, draws(), K=K))
    yield Step(f"lemmas: {name}", lemmas)
    if isinstance(objective, Quadratic):
        exact = partial(check_exact, objective, FAMILIES, b=scale.b, K=K, rounds=scale.exact_rounds)
        yield Step(f"exact expectations: {name}", exact)


def _corollaries(scale: Scale) -> Iterator[Step]:
    for objective in objectives(scale.d):
        if isinstance(objective, Quadratic) and (objective.heterogeneous or scale.thorough):
            share = 0.1 if objective.problem.mu else 0.5
            check = partial(check_communication, objective, FAMILIES, b=scale.b, K=5, share=share)
            yield Step(f"communication: {objective.setting}", check)
            if objective.name == "quadratic" and objective.heterogeneous:
                yield Step(
                    "linear rate", partial(check_linear_rate, objective, FAMILIES if scale.thorough else ("srht",))
                )


def _shipped(scale: Scale, key: Key) -> Iterator[Step]:
    """Every family with every codec; where something is taken in turn, every value comes up with every codec."""
    d, ks = scale.shipped_d, scale.shipped_steps
    equal, different = (large_objectives(d, heterogeneous=h) for h in (False, True))
    for f, family in enumerate(FAMILIES):
        for c, codec in enumerate(CODEC_TABLE):
            wire, own = Route(family=family, d=d, b=scale.shipped_b, codec=codec), key.fold_in(family, codec)
            yield Step(f"over the wire: {family}, {codec}", partial(check_wire, wire, rounds=scale.messages, key=own))
            chosen = range(len(equal)) if scale.thorough else [(f + c) % len(equal)]
            for i in chosen:
                for K in ks if codec == "f32" else [ks[(f + c + i) % len(ks)]]:
                    yield from _runs(scale, equal[i], wire, K, own)
                    yield from _runs(scale, different[i], wire, K, own)


def _runs(scale: Scale, objective: KnownObjective, wire: Route, K: int, key: Key) -> Iterator[Step]:
    name = f"{objective.setting}, K={K}, {wire.family}, {wire.codec}"
    cases = CASES if scale.thorough and wire.codec == "f32" else LONGEST
    T, seeds = scale.shipped_rounds, scale.shipped_seeds
    runs = partial(check_federation, objective, wire, cases=cases, K=K, rounds=T, seeds=seeds, key=key)
    yield Step(f"through fed: {name}", runs)
    if wire.codec == "f32":
        rule = partial(check_update_rule, objective, wire, K=K, rounds=T, key=key)
        yield Step(f"lem:update_rule, shipped: {name}", rule)
