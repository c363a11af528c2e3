"""Turnout: whether anybody's update was ever used; a run in which all were refused must not look like a result."""

from __future__ import annotations

from desketch.errors import RunError
from desketch.fed.rounds import Observer, RoundRecord

__all__ = ["Turnout"]

_NAMED = 5


class Turnout(Observer):
    """Counts the updates that were used, and keeps why others were not."""

    def __init__(self) -> None:
        self.rounds, self.used = 0, 0
        self.reasons: set[str] = set()

    def on_round(self, record: RoundRecord) -> None:
        """Count one round."""
        self.rounds += 1
        self.used += record.participants
        self.reasons |= set(record.refused.values())

    def check(self, *, answers: bool = False) -> None:
        """Raise if updates came and none could be used; with ``answers``, also if none came."""
        if self.rounds and not self.used and (self.reasons or answers):
            why = "; ".join(sorted(self.reasons)[:_NAMED]) or "nobody answered"
            raise RunError(f"no update of any client could be used in {self.rounds} rounds: {why}")
