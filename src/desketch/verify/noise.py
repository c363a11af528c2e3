"""What a codec does to a statement: does it cover the run, at which step, with which bound.

The one seam for noise. A code that errs by E|C(s) - s|² <= omega |s|² only enlarges alpha where all clients send the
same vector; where they differ (sigma_star > 0) it leaves a floor, about which the statements used here say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from desketch.sketches import family
from desketch.theory import Problem, Theorem
from desketch.theory.link import CODECS, alpha_on_the_wire
from desketch.verify.objectives import Objective
from desketch.verify.shipped import Wire

__all__ = ["Rounded", "rounded"]

# One frame of sign1 is a function of the vector and the round alone: equal clients err alike, so nothing averages out.
_ALIKE = frozenset({"sign1"})


@dataclass(frozen=True)
class Rounded:
    """A statement as it stands for messages rounded by a codec: alpha is that of the sketch and the codec together."""

    statement: Theorem
    problem: Problem
    K: int
    alpha: float

    def bound(self, *, eta: float, T: int) -> float:
        """The right-hand side after T rounds."""
        return self.statement.bound(self.problem, alpha=self.alpha, K=self.K, eta=eta, T=T)


def wire_alpha(wire: Wire, clients: int) -> float:
    """Alpha of the family's default layout and the codec, both ways."""
    alpha = family(wire.family, d=wire.d, b=wire.b).alpha
    return alpha_on_the_wire(alpha, CODECS[wire.codec], 1 if wire.codec in _ALIKE else clients)


def rounded(statement: Theorem, objective: Objective, wire: Wire, K: int) -> Rounded | None:
    """The statement for this codec and K local steps, or None where it does not cover them."""
    if objective.heterogeneous and CODECS[wire.codec].omega:
        return None
    return Rounded(statement, objective.problem, K, wire_alpha(wire, objective.N))
