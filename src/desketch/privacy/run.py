"""The privacy of one run: its mechanism, calibrated, and its ledger, charged before every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from desketch.privacy.accountants import METHODS, epsilon
from desketch.privacy.calibrate import Budget, BudgetKeeper, noise_multiplier
from desketch.privacy.events import Event, Ledger
from desketch.privacy.record import PrivacyRecord

__all__ = ["RunLedger", "calibrated", "planned_epsilon"]

Releases = Callable[[int], Mapping[str, Event]]  # round t -> what each party would release in it
_EXACT = 16  # counts up to here are reported exactly, larger ones rounded up to four binary digits


class RunLedger:
    """Charges round t before it happens, and says what has been spent."""

    def __init__(
        self,
        releases: Releases,
        *,
        claim: Mapping[str, str],
        unit: str,
        delta: float,
        budget: float | None = None,
        not_private: str = "",
    ) -> None:
        self._releases = releases
        self._claim = dict(claim)
        self._delta = delta
        self._keeper = BudgetKeeper(
            Ledger(unit, self._claim["adjacency"], not_private=not_private),
            None if budget is None else Budget(budget, delta),
        )

    def charge(self, t: int) -> None:
        """Record what round t will release, or raise `desketch.errors.BudgetError` and record nothing."""
        self._keeper.charge_each(dict(self._releases(t)))

    def epsilon(self) -> float | None:
        """An upper bound on the epsilon spent so far, within a few percent; None when the run is NOT PRIVATE.

        Counts are rounded up, so that reporting every round costs O(log T) compositions; `spent` is exact.
        """
        ledger, budget = self._keeper.ledger, self._keeper.budget
        if ledger.not_private:
            return None
        ahead = {tuple((event, _round_up(count)) for event, count in history) for history in ledger.histories()}
        bound = METHODS["pld"](ahead, ledger.adjacency, self._delta)
        return bound if budget is None else min(bound, budget.epsilon)

    def spent(self) -> float:
        """The epsilon spent so far, exactly as `desketch account` states it."""
        return epsilon(self._keeper.ledger, self._delta)

    def facts(self) -> dict[str, Any]:
        """The claim with its numbers, flat, for a run's summary and report."""
        ledger, budget = self._keeper.ledger, self._keeper.budget
        spent = None if ledger.not_private else self.spent()
        allowed = None if budget is None else budget.epsilon
        return {**self._claim, "epsilon": spent, "delta": self._delta, "budget": allowed, "method": "pld"}

    @property
    def record(self) -> PrivacyRecord:
        """Everything a run folder keeps in ``privacy.json``."""
        return PrivacyRecord(self._claim, self._keeper.ledger, self._delta, self._keeper.budget)

    def state_dict(self) -> dict[str, Any]:
        """Return JSON values for a checkpoint."""
        return self._keeper.ledger.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take in what an interrupted run knew: what it spent stays spent, and what was NOT PRIVATE stays so.

        Counts never fall, so copies of different age may be taken in, in any order.
        """
        self._keeper.ledger = self._keeper.ledger.joined(Ledger.from_dict(state))


def calibrated(
    releases: Callable[[float], Releases], *, unit: str, adjacency: str, epsilon: float, delta: float, rounds: int
) -> float:
    """Return the noise multiplier with which rounds 1..T just fit the budget; ``releases(z)(t)`` as in `RunLedger`."""
    attended = _attended(releases(1.0), rounds)
    return noise_multiplier(epsilon, delta, lambda z: _whole(releases(z), attended, Ledger(unit, adjacency)))


def planned_epsilon(releases: Releases, *, unit: str, adjacency: str, delta: float, rounds: int) -> float:
    """The epsilon that rounds 1..T will have spent."""
    return epsilon(_whole(releases, _attended(releases, rounds), Ledger(unit, adjacency)), delta)


def _attended(releases: Releases, rounds: int) -> dict[str, list[int]]:
    attended: dict[str, list[int]] = {}
    for t in range(1, rounds + 1):
        for party in releases(t):
            attended.setdefault(party, []).append(t)
    return attended


def _whole(releases: Releases, attended: Mapping[str, list[int]], empty: Ledger) -> Ledger:
    after = empty
    for party, when in attended.items():
        after = after.plus(releases(when[0])[party], parties=[party], count=len(when))
    return after


def _round_up(count: int) -> int:
    if count <= _EXACT:
        return count
    j = count.bit_length() - 4
    return -(-count >> j) << j
