"""RoundReport: one round of a session as its server saw it, and the row that is written of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from desketch.fed.rounds import RoundRecord

__all__ = ["RoundReport"]


@dataclass(frozen=True)
class RoundReport:
    """One round as the server saw it; bytes are of messages really sent and received, frames and all."""

    round: int
    asked: int
    participants: tuple[int, ...]
    refused: dict[str, str]
    silent: int
    bytes_up: int
    bytes_down: int
    eta_global: float
    digest: str
    client_seconds: float
    epsilon: float | None = None
    public: Mapping[str, Any] | None = None
    limited: Mapping[str, str] = field(default_factory=dict)
    void: str | None = None
    signal: Mapping[str, float] = field(default_factory=dict)  # its shares, where there is no privacy

    def record(self, metrics: Mapping[str, float], seconds: float, *, up: int = 0, down: int = 0) -> RoundRecord:
        """The row as the in-process engine writes it; ``up`` and ``down`` are bytes that moved after the round."""
        return RoundRecord(
            round=self.round,
            metrics=metrics,
            bytes_up=self.bytes_up + up,
            bytes_down=self.bytes_down + down,
            asked=self.asked,
            participants=len(self.participants),
            refused=self.refused,
            dropped=self.silent,
            late=0,
            eta_global=self.eta_global,
            digest=self.digest,
            seconds=seconds,
            epsilon=self.epsilon,
            public=self.public,
            limited=self.limited,
            void=self.void,
            **self.signal,
        )
