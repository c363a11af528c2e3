"""Where differential privacy plugs into a round: three places, one ledger.

`Privacy` names them.  ``step`` replaces the local gradient (noise before the sketch, every local step); ``examples``
makes the sketch itself from clipped per-example gradients (K = 1); ``sketch`` clips what leaves a client and noises the
server's sum (client level).  ``ledger`` is charged BEFORE anything of round t is released and raises
`desketch.errors.BudgetError` when that release would exceed the budget: the run then ends with the last legal model.

The protocols are structural: `desketch.privacy` provides classes that fit them and does not import this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from desketch.privacy.record import PrivacyRecord
from desketch.sketches import Sketch

__all__ = ["ExampleMechanism", "Privacy", "RoundLedger", "SketchMechanism", "StepMechanism"]


class RoundLedger(Protocol):
    """The record of what was released, and the budget it is held against."""

    def charge(self, t: int) -> None:
        """Record the release of round t, or raise BudgetError without recording it."""

    def epsilon(self) -> float | None:
        """Return the epsilon spent so far, at the ledger's delta; None when the run is not private."""

    @property
    def record(self) -> PrivacyRecord:
        """What a run folder keeps in ``privacy.json``."""

    def state_dict(self) -> dict[str, Any]:
        """JSON values that `load_state_dict` restores."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue an interrupted ledger."""


class StepMechanism(Protocol):
    """Example-level DP of every local step; the sketch is post-processing."""

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return one private gradient (d,) of a client with data (x, y), all of it: the batch is drawn inside."""


class ExampleMechanism(Protocol):
    """Example-level DP in the sketch domain, for K = 1."""

    def sketched_gradient(self, R: Sketch, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the private mean (b,) of the clipped per-example sketches R g_i of the client's whole data (x, y)."""


class SketchMechanism(Protocol):
    """Client-level DP in the sketch domain, sensitivity exactly C for every family."""

    @property
    def sampling_rate(self) -> float:
        """q, public; below 1 the cohort must stay secret."""

    @property
    def clients(self) -> int:
        """N, public."""

    def sample(self, clients: int) -> list[int]:
        """Draw round t's cohort by Poisson sampling from OS entropy."""

    def guard(self, sketches: Tensor) -> Tensor:
        """Client side: clip each row of (n, b) to C, and add this client's share of the noise if it is shared out."""

    def average(self, sketches: Tensor) -> Tensor:
        """Server side: clip the decoded rows again, sum, add noise, divide by the public qN; n may be 0."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a private run plugs in; at most one mechanism is set."""

    ledger: RoundLedger
    step: StepMechanism | None = None
    examples: ExampleMechanism | None = None
    sketch: SketchMechanism | None = None
