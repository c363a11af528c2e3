"""From a target (epsilon, delta) to a noise multiplier, and a budget that is enforced before every release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from desketch.errors import BudgetError, InputError, PrivacyError
from desketch.privacy.accountants import METHODS, epsilon
from desketch.privacy.events import EVERYBODY, Event, Ledger, check_delta, check_epsilon

__all__ = ["Budget", "BudgetKeeper", "noise_multiplier"]

_TOLERANCE = 1e-6  # relative, on the noise multiplier
_NEAR = 1e-4  # relative: how near the rough search comes
_SECANTS, _ASTRAY = 8, 0.1  # from the rough zero
_RANGE = (2.0**-7, 2.0**20)


def noise_multiplier(target: float, delta: float, ledger: Callable[[float], Ledger], *, method: str = "pld") -> float:
    """Return the least noise multiplier z, to six digits from above, with ``epsilon(ledger(z), delta) <= target``."""
    from scipy.optimize import brentq

    check_epsilon(target)
    check_delta(delta)

    def excess(log_z: float, *, rough: bool = False) -> float:
        spent = epsilon(ledger(math.exp(log_z)), delta, method=method, rough=rough)
        return math.log(max(spent, 1e-300) / target)

    log_z = _by_secants(excess, partial(excess, rough=True), target)
    if log_z is None:
        log_z = brentq(excess, *_bracket(excess, target), xtol=_TOLERANCE / 4)
    while excess(log_z) > 0:
        log_z += _TOLERANCE / 2
    return math.exp(log_z)


def _by_secants(excess: Callable[[float], float], rough: Callable[[float], float], target: float) -> float | None:
    """The zero of an excess whose every answer is dear, from that of a rough one.

    None where that leads nowhere: the target is finer than the rough grid, or the excess jumps.
    """
    from scipy.optimize import brentq

    try:
        start = brentq(rough, *_bracket(rough, target), xtol=_NEAR)
    except PrivacyError:
        return None
    slope = (rough(start + _NEAR) - rough(start - _NEAR)) / (2 * _NEAR)
    log_z, here = start, excess(start)
    for _ in range(_SECANTS):
        step = -here / slope if slope < 0 else math.inf
        if abs(step) <= _TOLERANCE / 4:
            return log_z
        if not abs(log_z + step - start) <= _ASTRAY:
            return None
        there = excess(log_z + step)
        slope, log_z, here = (there - here) / step, log_z + step, there
    return None


def _bracket(excess: Callable[[float], float], target: float) -> tuple[float, float]:
    """Double or halve from z = 1 until the target lies between."""
    z = 1.0
    step = 2.0 if excess(0.0) > 0 else 0.5
    while _RANGE[0] <= z <= _RANGE[1]:
        if (excess(math.log(z * step)) > 0) != (step > 1):
            return math.log(min(z, z * step)), math.log(max(z, z * step))
        z *= step
    raise PrivacyError(
        f"no noise multiplier in [{_RANGE[0]:.3g}, {_RANGE[1]:.3g}] meets epsilon = {target:.4g} as asked; "
        "change epsilon, delta, the sampling rate or the number of releases"
    )


@dataclass(frozen=True)
class Budget:
    """The most that may be spent: (epsilon, delta), as counted by ``method``."""

    epsilon: float
    delta: float
    method: str = "pld"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.method not in METHODS:
            raise InputError(f"unknown accounting method {self.method!r}; known: {', '.join(METHODS)}")


class BudgetKeeper:
    """Holds the ledger of a run and refuses the release that would exceed the budget, before it is made.

    >>> from desketch.privacy.events import Gaussian, PoissonSampled
    >>> keeper = BudgetKeeper(Ledger("client"), Budget(4.0, 1e-5))
    >>> keeper.charge(PoissonSampled(0.1, Gaussian(1.0)))  # then release; a BudgetError means: do not
    """

    def __init__(self, ledger: Ledger, budget: Budget | None = None) -> None:
        self.ledger = ledger
        self.budget = budget

    def charge(self, event: Event, *, parties: Iterable[str] = (EVERYBODY,)) -> None:
        """Record one release of ``event`` by each of ``parties``, or raise `BudgetError` and record nothing."""
        self.charge_each({party: event for party in parties})

    def charge_each(self, releases: dict[str, Event]) -> None:
        """Record a round in which party ``p`` releases ``releases[p]``: all of it, or, over budget, none of it."""
        after = self.ledger
        for event in set(releases.values()):
            after = after.plus(event, parties=[party for party, one in releases.items() if one == event])
        if self.budget is not None and not self.within(after, self.budget):
            raise BudgetError(
                f"the next release would exceed the budget epsilon = {self.budget.epsilon:g} at delta = "
                f"{self.budget.delta:g} ({self.budget.method}); nothing was released. The last model stays legal: stop "
                "here, or start a new run with more noise or fewer rounds"
            )
        self.ledger = after

    @staticmethod
    def within(ledger: Ledger, budget: Budget) -> bool:
        """Whether the ledger keeps to the budget.  Epsilon grows with counts: one that does clears every smaller one.

        Counts are rounded up to multiples of 2^j, j falling to 0, and the accountants remember each answer, so that T
        rounds need O(log T) compositions in all, not T.
        """
        histories = ledger.histories()
        most = max((count for history in histories for _, count in history), default=1)
        for j in range(most.bit_length(), 0, -1):
            ahead = {tuple((event, -(-count >> j) << j) for event, count in history) for history in histories}
            try:
                if METHODS[budget.method](ahead, ledger.adjacency, budget.delta) <= budget.epsilon:
                    return True
            except PrivacyError:  # a precondition that fails further ahead says nothing about now
                continue
        return METHODS[budget.method](histories, ledger.adjacency, budget.delta) <= budget.epsilon
