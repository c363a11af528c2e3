"""What a codec does to a statement: does it cover the run, at which step, with which bound.

The one seam between the shipped runs and `desketch.theory.noise`.
"""

from __future__ import annotations

from dataclasses import dataclass

from desketch.errors import TheoryError
from desketch.sketches import family
from desketch.theory import Problem, Theorem
from desketch.theory.link import CODECS, rounding
from desketch.theory.noise import Noise
from desketch.verify.objectives import KnownObjective
from desketch.verify.shipped import Route

__all__ = ["Rounded", "rounded", "wire_alpha"]


@dataclass(frozen=True)
class Rounded:
    """A statement for messages rounded by a codec; ``alpha`` is that of the sketch and the noise together."""

    statement: Theorem
    problem: Problem
    K: int
    sketch: float
    noise: Noise

    @property
    def alpha(self) -> float:
        """The alpha that bounds the step."""
        return self.statement.loaded_alpha(self.problem, alpha=self.sketch, K=self.K, noise=self.noise)

    def bound(self, *, eta: float, T: int) -> float:
        """The right-hand side after T rounds."""
        return self.statement.bound(self.problem, alpha=self.sketch, K=self.K, eta=eta, T=T, noise=self.noise)


def wire_alpha(wire: Route, clients: int) -> float:
    """Alpha of the family's default layout and the codec, both ways, where all clients send the same vector."""
    return _noise(wire, clients).loaded(family(wire.family, d=wire.d, b=wire.b).alpha, 1.0)


def rounded(statement: Theorem, objective: KnownObjective, wire: Route, K: int) -> Rounded | None:
    """The statement for this codec and K local steps, or None where it does not cover them."""
    noise, problem = _noise(wire, objective.N), objective.problem
    try:
        statement.check_noise(problem, noise)
    except TheoryError:
        return None
    return Rounded(statement, problem, K, family(wire.family, d=wire.d, b=wire.b).alpha, noise)


def _noise(wire: Route, clients: int) -> Noise:
    return rounding(CODECS[wire.codec], family=wire.family, b=wire.b, clients=clients)
