"""Algorithm 1 on many independent runs at once, with the sketches the library really draws.

One R_t per run and round serves both halves of the round: w <- w + R_tᵀ R_t (1/N) sum_c (u_c^K - w).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from desketch.verify.objectives import Objective
from desketch.keys import Key
from desketch.sketches import draw
from desketch.theory import embedding

__all__ = ["Draws", "Trace", "draw_sketches", "run"]

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
class Trace:
    """What the theorems speak of, per round and run: row t is after t rounds."""

    last: Array  # f(w^t) - f*                          (rounds + 1, runs)
    gradient: Array  # |∇f(w^t)|²                       (rounds + 1, runs)
    local_mean: Array  # f(mean of all ū^{t,k}) - f*    (rounds + 1, runs); row 0 repeats the start
    round_mean: Array  # f(mean of w^0..w^t) - f*       (rounds + 1, runs)


def run(objective: Objective, draws: Draws, *, eta: Array, K: int, lag: int = 0) -> Trace:
    """K local steps of size ``eta`` (runs, 1) a round; ``lag`` = 1 de-sketches with the next round's R, as printed."""
    runs, rounds = draws.R.shape[0], draws.rounds - lag
    W = np.broadcast_to(objective.w0, (runs, len(objective.w0))).copy()
    local_sum, round_sum = np.zeros_like(W), W.copy()
    rows = [_measure(objective, W, W, W)]
    for t in range(rounds):
        U = np.broadcast_to(W, (len(objective.gradients(W[None, :1])), *W.shape))
        for _ in range(K):
            local_sum += U.mean(0)
            U = U - eta * objective.gradients(U)
        delta = U.mean(0) - W
        sketch = draws.R[:, t] @ delta[:, :, None]
        W = W + (draws.R[:, t + lag].transpose(0, 2, 1) @ sketch)[:, :, 0]
        round_sum += W
        rows.append(_measure(objective, W, local_sum / (K * (t + 1)), round_sum / (t + 2)))
    return Trace(*(np.stack(column) for column in zip(*rows, strict=True)))


def _measure(objective: Objective, W: Array, local_mean: Array, round_mean: Array) -> tuple[Array, ...]:
    gradient = (objective.gradient(W) ** 2).sum(1)
    return objective.values(W), gradient, objective.values(local_mean), objective.values(round_mean)
