"""The whole verification at two sizes, as a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from desketch.verify.checks import check_curved, check_exact, check_moments, check_runs, check_tails
from desketch.verify.objectives import Quadratic, objectives
from desketch.verify.refutations import refute
from desketch.verify.rows import Row
from desketch.verify.simulate import draw_sketches
from desketch.keys import Key
from desketch.theory.embedding import FAMILIES

__all__ = ["FULL", "QUICK", "Scale", "verify"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is run: independent runs per family, their rounds, and the rounds of the exact recursions."""

    d: int
    b: int
    seeds: int
    rounds: int
    exact_rounds: int
    local_steps: tuple[int, ...] = (1, 5, 20)


QUICK = Scale(d=24, b=8, seeds=32, rounds=100, exact_rounds=400)
FULL = Scale(d=24, b=8, seeds=64, rounds=200, exact_rounds=3000)


def verify(scale: Scale, *, seed: int = 2023, progress: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Every check, then every counter-example."""
    progress("drawing sketches")
    size = {"d": scale.d, "b": scale.b}
    draws = draw_sketches(FAMILIES, **size, seeds=scale.seeds, rounds=scale.rounds, key=Key(seed).fold_in("verify"))
    yield from check_moments(draws)
    yield from check_tails(draws)
    for objective in objectives(scale.d):
        for K in scale.local_steps:
            progress(f"{objective.setting}, K={K}")
            yield from check_runs(objective, draws, K=K)
            if isinstance(objective, Quadratic):
                yield from check_exact(objective, FAMILIES, b=scale.b, K=K, rounds=scale.exact_rounds)
    for K in scale.local_steps:
        yield from check_curved(FAMILIES, **size, K=K, rounds=scale.exact_rounds)
    progress("counter-examples")
    yield from refute(draws)
