"""ClientLedger: what one client has released, kept by the client itself, whatever a server says.

    asked for (run, round t, weights w)
        the last answer, to the same question       the same bytes, and no charge
        an earlier round, or t at other weights     refused: it would be a second release
        t beyond the agreed T, another agreement    refused
        the next release would exceed the budget    refused
        else                                        charged; charge and answer reach the disk together, then it leaves

Without a word from its operator a client keeps to the first private agreement it meets, and to that one's budget.  An
operator who wants several runs, or trusts no server with the first word, sets `Limits` for all that ever leaves.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from desketch.errors import BudgetError, InputError, PrivacyError
from desketch.privacy.calibrate import Budget, BudgetKeeper
from desketch.privacy.events import Event, Ledger, check_delta, check_epsilon

__all__ = ["Answer", "ClientLedger", "Limits", "Terms"]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a client agreed to: a run by name, its T rounds, what a round costs, and the run's budget.

    ``cost`` is None where the client adds no noise of its own and only counts; ``unasked`` says that a round costs
    whoever was asked in it (client-level privacy is spent by broadcasts).
    """

    run: str
    rounds: int
    unit: str = "client"
    adjacency: str = "add-remove"
    cost: Event | None = None
    unasked: bool = False
    budget: Budget | None = None
    not_private: str = ""

    @property
    def name(self) -> str:
        """Equal for equal terms: a server that words one run differently makes it another."""
        facts = asdict(self) | {"cost": self.cost.to_dict() if self.cost else None}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the client's operator allows over all runs: an epsilon at a delta, a number of releases, or both."""

    epsilon: float | None = None
    delta: float | None = None
    releases: int | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) != (self.delta is None):
            raise InputError("a client's limit in epsilon needs a delta, and a delta an epsilon; give both or neither")
        if self.epsilon is not None and self.delta is not None:
            check_epsilon(self.epsilon)
            check_delta(self.delta)
        if self.releases is not None and (not isinstance(self.releases, int) or self.releases < 0):
            raise InputError(f"a client's limit of releases is a whole number, got {self.releases!r}")

    @property
    def budget(self) -> Budget | None:
        """The limit in epsilon as a budget."""
        return None if self.epsilon is None or self.delta is None else Budget(self.epsilon, self.delta)


@dataclass(frozen=True)
class Answer:
    """The last release: the terms it was made under, its round, the weights it was asked at, and its bytes."""

    terms: str
    t: int
    question: str
    reply: bytes


@dataclass(frozen=True)
class ClientLedger:
    """Immutable: `admit` checks, `after` is the ledger to keep before the answer leaves; ``serial`` counts answers."""

    limits: Limits | None = None
    serial: int = 0
    rounds: Mapping[str, int] = field(default_factory=dict)  # terms -> the last round answered
    spent: Ledger | None = None
    last: Answer | None = None

    def repeated(self, terms: Terms, t: int, question: str) -> bytes | None:
        """The answer that was given to this very question, or None when it is a new one; refuses a second release."""
        done = self.rounds.get(terms.name, 0)
        if t > done:
            return None
        if self.last and (self.last.terms, self.last.t, self.last.question) == (terms.name, t, question):
            return self.last.reply
        raise PrivacyError(
            f"round {t} was asked, but this client has answered rounds up to {done}; an earlier round, or the same at "
            "other weights, would be a second release. Go on after the last round, or start a new run"
        )

    def admit_plain(self) -> None:
        """Refuse a release without privacy by a client that has private ones, or whose operator set limits."""
        if self.serial or self.limits:
            raise PrivacyError(
                "the server asks for an update without privacy, but this client releases private ones only; its folder "
                "holds limits or a ledger. Take another folder for data that need no protection"
            )

    def admit(self, terms: Terms, t: int) -> Ledger | None:
        """What will have been spent after round t; raises when it must not be released."""
        if not 1 <= t <= terms.rounds:
            raise PrivacyError(f"round {t} was asked of a run of {terms.rounds} rounds; this client agreed to no more")
        if self.limits is None and self.rounds and terms.name not in self.rounds:
            raise PrivacyError(
                "this client has released under another agreement, and has no word from its operator about more runs; "
                "to allow them, set limits over all runs (epsilon and delta, or releases) in limits.toml of its folder"
            )
        if self.limits and self.limits.releases is not None and self.serial >= self.limits.releases:
            raise BudgetError(
                f"this client has released {self.serial} times, and its operator allows {self.limits.releases}"
            )
        return self._charged(terms, t)

    def after(self, terms: Terms, t: int, question: str, reply: bytes) -> ClientLedger:
        """The ledger with this answer charged and kept."""
        return replace(
            self,
            serial=self.serial + 1,
            rounds={**self.rounds, terms.name: t},
            spent=self.admit(terms, t),
            last=Answer(terms.name, t, question, reply),
        )

    def _charged(self, terms: Terms, t: int) -> Ledger | None:
        limit = self.limits.budget if self.limits else None
        if terms.cost is None:
            if limit:
                raise PrivacyError(
                    "this client adds no noise of its own in this run, so its operator's limit in epsilon cannot be "
                    "kept; limit releases instead, or take a mechanism with noise at the client"
                )
            return self.spent
        fresh = Ledger(terms.unit, terms.adjacency, not_private=terms.not_private)
        count = t - self.rounds.get(terms.name, 0) if terms.unasked else 1
        spent = fresh.joined(self.spent or fresh).plus(terms.cost, parties=[terms.name], count=count)
        _check(replace(spent, spent={terms.name: spent.spent[terms.name]}), terms.budget, "in this run")
        _check(_together(spent), limit, "over all runs")
        return spent

    def to_dict(self) -> dict[str, Any]:
        """JSON values; limits are the operator's and not kept here."""
        last = self.last and asdict(self.last) | {"reply": base64.b64encode(self.last.reply).decode()}
        spent = self.spent and self.spent.to_dict()
        return {"version": 1, "serial": self.serial, "rounds": dict(self.rounds), "spent": spent, "last": last}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], limits: Limits | None = None) -> ClientLedger:
        """Rebuild a ledger; refuse what is not one."""
        try:
            if data["version"] != 1:
                raise PrivacyError(f"this client's ledger has version {data['version']!r}; this release reads 1")
            last = data["last"] and Answer(**data["last"] | {"reply": base64.b64decode(data["last"]["reply"])})
            spent = data["spent"] and Ledger.from_dict(data["spent"])
            return cls(limits, int(data["serial"]), dict(data["rounds"]), spent, last)
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"this is not a client's ledger ({error!r})") from None


def _together(ledger: Ledger) -> Ledger:
    """All runs as one history: they were of the same data."""
    total = replace(ledger, spent={})
    for counts in ledger.spent.values():
        for event, count in counts.items():
            total = total.plus(event, count=count)
    return total


def _check(ledger: Ledger, budget: Budget | None, where: str) -> None:
    if budget and not BudgetKeeper.within(ledger, budget):
        raise BudgetError(
            f"the next release would exceed this client's own budget of epsilon = {budget.epsilon:g} at delta = "
            f"{budget.delta:g} {where}; nothing was released"
        )
