"""Algorithm 1 on many independent runs at once, with the sketches the library really draws.

One R_t per run and round serves both halves of the round: w <- w + R_tᵀ R_t (1/N) sum_c (u_c^K - w). `walk` yields the
rounds with everything the lemmas speak of; `run` keeps what the theorems bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from desketch.keys import Key
from desketch.sketches import draw
from desketch.theory import embedding
from desketch.verify.objectives import KnownObjective

__all__ = ["Draws", "Round", "Trace", "draw_sketches", "measure", "run", "walk"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Draws:
    """Independent sketches: ``R[f·seeds + s, t]`` is the b x d matrix of family f in round t of run s."""

    families: tuple[str, ...]
    seeds: int
    R: Array  # (families * seeds, rounds, b, d), float32

    @property
    def rounds(self) -> int:
        """Rounds a run can take."""
        return int(self.R.shape[1])

    @property
    def alpha(self) -> Array:
        """Alpha of every run's family, (families * seeds, 1)."""
        b, d = self.R.shape[2:]
        return np.repeat([embedding(f, d=d, b=b).alpha for f in self.families], self.seeds)[:, None]

    def by_family(self, values: Array) -> Array:
        """(..., runs) -> (..., families, seeds)."""
        return values.reshape(*values.shape[:-1], len(self.families), self.seeds)


def draw_sketches(families: tuple[str, ...], *, d: int, b: int, seeds: int, rounds: int, key: Key) -> Draws:
    """Draw every R of every run."""
    R = np.empty((len(families) * seeds, rounds, b, d), dtype=np.float32)
    eye = np.eye(b, dtype=np.float32)  # desketching it gives the rows of R
    for f, family in enumerate(families):
        for s in range(seeds):
            for t in range(rounds):
                R[f * seeds + s, t] = draw(family, d=d, b=b, key=key.fold_in(family, s, t)).desketch(eye)
    return Draws(families, seeds, R)


@dataclass(frozen=True)
class Round:
    """One round of all runs, in the letters of Definition ``def:convex_terms_2``."""

    W: Array  # w^t, where the round starts                     (runs, d)
    U: Array  # u_c^{t,k} for k = 0..K                          (K + 1, clients, runs, d)
    G: Array  # g_c^{t,k} = ∇f_c(u_c^{t,k}) for k = 0..K-1      (K, clients, runs, d)
    W_next: Array  # w^{t+1}                                    (runs, d)
    R: Array  # R_t                                             (runs, b, d)

    def back(self, x: Array) -> Array:
        """R_tᵀ R_t x for every run: (runs, d) -> (runs, d)."""
        return (self.R.transpose(0, 2, 1) @ (self.R @ x[:, :, None]))[:, :, 0]


def walk(objective: KnownObjective, draws: Draws, *, eta: Array, K: int, lag: int = 0) -> Iterator[Round]:
    """K local steps of size ``eta`` (runs, 1) a round; ``lag`` = 1 de-sketches with the next round's R, as printed.

    The arrays U and G of a round are overwritten by the next one.
    """
    W = np.broadcast_to(objective.w0, (draws.R.shape[0], len(objective.w0))).copy()
    U = np.empty((K + 1, objective.N, *W.shape))
    G = np.empty((K, objective.N, *W.shape))
    for t in range(draws.rounds - lag):
        U[0] = W
        for k in range(K):
            G[k] = objective.gradients(U[k])
            U[k + 1] = U[k] - eta * G[k]
        sketch = draws.R[:, t] @ (U[K].mean(0) - W)[:, :, None]
        after = W + (draws.R[:, t + lag].transpose(0, 2, 1) @ sketch)[:, :, 0]
        yield Round(W, U, G, after, draws.R[:, t])
        W = after


@dataclass(frozen=True)
class Trace:
    """What the theorems speak of, per round and run: row t is after t rounds."""

    last: Array  # f(w^t) - f*                          (rounds + 1, runs)
    gradient: Array  # |∇f(w^t)|²                       (rounds + 1, runs)
    local_mean: Array  # f(mean of all ū^{t,k}) - f*    (rounds + 1, runs); row 0 repeats the start
    round_mean: Array  # f(mean of w^0..w^t) - f*       (rounds + 1, runs)


def run(objective: KnownObjective, draws: Draws, *, eta: Array, K: int, lag: int = 0) -> Trace:
    """`walk`, measured after every round."""
    rows: list[tuple[Array, ...]] = []
    local_sum, round_sum = np.zeros(1), np.zeros(1)
    for t, step in enumerate(walk(objective, draws, eta=eta, K=K, lag=lag)):
        if not rows:
            rows, round_sum = [measure(objective, step.W, step.W, step.W)], step.W
        local_sum, round_sum = local_sum + step.U[:K].mean((0, 1)), round_sum + step.W_next
        rows.append(measure(objective, step.W_next, local_sum / (t + 1), round_sum / (t + 2)))
    return Trace(*(np.stack(column) for column in zip(*rows, strict=True)))


def measure(objective: KnownObjective, W: Array, local_mean: Array, round_mean: Array) -> tuple[Array, ...]:
    """One row of a `Trace`."""
    gradient = (objective.gradient(W) ** 2).sum(1)
    return objective.values(W), gradient, objective.values(local_mean), objective.values(round_mean)
