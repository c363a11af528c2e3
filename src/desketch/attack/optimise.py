"""Reconstruct x: a solver, restarts, and a scan over labels, with one stopping rule.

A reconstruction is accepted when its loss is what the truth itself would leave: nothing without noise, a χ² with
noise.  Below the identifiability threshold a wrong x is accepted too: a low loss proves nothing there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from desketch.attack.labels import candidate_labels, class_frequencies
from desketch.attack.objective import Objective
from desketch.attack.prior import GaussianPrior
from desketch.attack.solvers import (
    AdamSolver,
    Box,
    GradientDescent,
    Iterate,
    Lbfgs,
    LevenbergMarquardt,
    PriorContinuation,
    Solver,
)
from desketch.errors import InputError

__all__ = ["SOLVERS", "Reconstruction", "acceptable", "build_solver", "reconstruct", "starts"]

Progress = Callable[[int, float], None]

SOLVERS: dict[str, Callable[[GaussianPrior], Solver]] = {
    "lm": lambda prior: LevenbergMarquardt(),
    "prior": lambda prior: PriorContinuation(prior),
    "box": lambda prior: Box(prior.lower, prior.upper),
    "lbfgs": lambda prior: Lbfgs(),
    "adam": lambda prior: AdamSolver(),
    "gd": lambda prior: GradientDescent(),
}


@dataclass(frozen=True)
class Reconstruction:
    """The best x found, its loss, the labels it goes with, and how it was found."""

    x: Tensor
    loss: float
    y: Tensor
    accepted: bool
    iterations: int
    seconds: float
    history: tuple[float, ...] = field(repr=False, default=())


def build_solver(name: str, prior: GaussianPrior) -> Solver:
    """The solver of this name with its default hyper-parameters."""
    if name not in SOLVERS:
        raise InputError(f"unknown solver {name!r}; choose one of {', '.join(SOLVERS)}")
    return SOLVERS[name](prior)


def starts(prior: GaussianPrior, generator: torch.Generator) -> Iterator[Tensor]:
    """The prior's mean, then draws between it and samples of the prior, without end."""
    yield prior.mean.clone()
    while True:
        yield 0.5 * (prior.mean + prior.sample(1, generator)[0])


def reconstruct(
    objective: Objective,
    solver: Solver,
    prior: GaussianPrior,
    *,
    classes: int | None = None,
    label_guesses: int = 3,
    restarts: int = 3,
    iterations: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Reconstruction:
    """Run ``solver`` over label guesses and restarts until a loss is accepted; else return the least loss.

    Args:
        objective: what was observed; its labels are used as known unless ``classes`` is given.
        solver: how to descend.
        prior: public knowledge of all the unknowns together; gives the starts.
        classes: number of classes, to scan for unknown labels.
        label_guesses: how many label vectors to try.
        restarts: starts per label vector.
        iterations: steps per start.
        seed: of the random starts.
        progress: called with (iteration, loss) after every step.

    """
    began, best, steps = time.perf_counter(), None, 0
    generator = torch.Generator().manual_seed(seed)
    points = list(islice(starts(prior, generator), restarts))
    for x0 in points:
        for y in _labels(objective, torch.stack(points), classes, label_guesses):
            guess = objective.with_labels(y)
            walk, history = _walk(guess, solver, x0, iterations, progress)
            steps += len(history)
            accepted = acceptable(guess, walk.loss)
            if best is None or walk.loss < best.loss:
                best = Reconstruction(walk.x, walk.loss, y, accepted, steps, 0.0, tuple(history))
            if accepted:
                break
        if best is not None and best.accepted:
            break
    if best is None:
        raise InputError(f"restarts must be at least 1, got {restarts}")
    return Reconstruction(best.x, best.loss, best.y, best.accepted, steps, time.perf_counter() - began, best.history)


def acceptable(objective: Objective, loss: float) -> bool:
    """Whether ``loss`` is what the true x would leave (4.5 standard deviations of χ² under noise)."""
    if not objective.noisy:
        return loss < 1e-10
    M = objective.measurements
    return loss < M + 4.5 * (2 * M) ** 0.5


def _labels(objective: Objective, probes: Tensor, classes: int | None, guesses: int) -> Iterable[Tensor]:
    if classes is None:
        return [objective.y]
    frequencies = class_frequencies(objective, probes, classes)
    return islice(candidate_labels(frequencies, objective.update.examples), guesses)


def _walk(
    objective: Objective, solver: Solver, x0: Tensor, iterations: int, progress: Progress | None
) -> tuple[Iterate, list[float]]:
    """The last iterate of a bounded walk that stops early once the loss is negligible."""
    history: list[float] = []
    best = Iterate(x0, float("inf"))
    for iterate in islice(solver.iterate(objective, x0), iterations + 1):
        history.append(iterate.loss)
        best = iterate
        if progress is not None:
            progress(len(history), iterate.loss)
        if not objective.noisy and iterate.loss < 1e-24:
            break
    return best, history
