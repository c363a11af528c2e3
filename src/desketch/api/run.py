"""Run: what `federate` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from desketch.fed.client import Participant
from desketch.fed.signal import first_rounds

__all__ = ["Run"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """A finished (or interrupted) run."""

    model: nn.Module
    history: list[dict[str, Any]]
    rounds: int
    bytes_up: float
    bytes_down: float
    epsilon: float | None
    delta: float | None
    digest: str
    stopped_by: str
    folder: Path | None = None
    clients: Sequence[Participant] = ()

    @property
    def bytes_per_client(self) -> float:
        """Bytes on the wire, up and down, per client: frames as they were encoded, headers and all."""
        return self.bytes_up + self.bytes_down

    def summary(self) -> dict[str, Any]:
        """Everything but the model and the history, for JSON."""
        last: dict[str, Any] = next((row for row in reversed(self.history)), {})
        known = {"round", "digest", "refused", "seconds", "eta_global", "epsilon", "signal_share", "step_share"}
        metrics = {k: v for k, v in last.items() if isinstance(v, float) and k not in known}
        signal = first_rounds(self.history)
        return {
            "rounds": self.rounds,
            "stopped_by": self.stopped_by,
            "bytes_up_per_client": self.bytes_up,
            "bytes_down_per_client": self.bytes_down,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "replica_digest": self.digest,
            "metrics": metrics,
            "signal_share": signal.signal_share if signal else None,
            "step_share": signal.step_share if signal else None,
        }

    def __repr__(self) -> str:
        private = f", epsilon={self.epsilon:.3g}" if self.epsilon is not None else ""
        return f"Run(rounds={self.rounds}, bytes_per_client={self.bytes_per_client:,.0f}{private}, {self.stopped_by})"
