"""What a run has released, as frozen events and a ledger; what that is worth is for `accountants` to say.

An event describes one release by its noise and its sampling, never by its data.  ``noise_multiplier`` is always
``z = noise standard deviation / clip``, both measured on the same quantity: on a sum of clipped contributions, or,
equally, on that sum over a public divisor.  The sensitivity of the sum is the clip under ``add-remove`` and twice the
clip under ``replace-one``; the accountants, not the events, know that factor.

A ledger counts events per *party*.  Parties hold disjoint data, so the run is as private as its worst party
(parallel composition, Lemma "Parallel Composition" of the paper).  At the client level there is one party: everybody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from desketch.errors import InputError, PrivacyError

__all__ = [
    "ADJACENCIES",
    "EVERYBODY",
    "UNITS",
    "Event",
    "Gaussian",
    "Ledger",
    "LocalSteps",
    "PoissonSampled",
    "Repeated",
    "check_delta",
    "check_epsilon",
    "check_positive",
]

UNITS = ("example", "client")
ADJACENCIES = ("add-remove", "replace-one")
EVERYBODY = "everybody"


@dataclass(frozen=True)
class Event:
    """One release.  An accountant that does not know an event's class refuses the ledger that holds it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON values, tagged with its class."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {"kind": type(self).__name__} | {k: v.to_dict() if isinstance(v, Event) else v for k, v in values}


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise of standard deviation ``noise_multiplier * clip`` on a sum of clipped contributions."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class PoissonSampled(Event):
    """``event`` on a sample that holds every member independently with probability ``sampling_rate``."""

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sampling_rate) and 0 < self.sampling_rate <= 1):
            raise InputError(f"a sampling rate lies in (0, 1], got {self.sampling_rate!r}")


@dataclass(frozen=True)
class Repeated(Event):
    """``event``, ``count`` times, adaptively."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _check_count("count", self.count)


@dataclass(frozen=True)
class LocalSteps(Event):
    """One client's round of Algorithm 2: ``steps`` noisy gradients over Poisson batches of ``batch`` in ``examples``.

    It keeps the four numbers apart because the paper's own theorems need them; `unrolled` is what it amounts to.
    """

    examples: int
    batch: int
    steps: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        for name in ("examples", "batch", "steps"):
            _check_count(name, getattr(self, name))
        if self.batch > self.examples:
            raise InputError(
                f"a batch of {self.batch} was asked of {self.examples} examples; batch must be at most the number of "
                "examples, so lower the batch or leave small clients out"
            )
        check_positive("noise_multiplier", self.noise_multiplier)

    @property
    def unrolled(self) -> Event:
        """The same release in terms of the elementary events."""
        return Repeated(PoissonSampled(self.batch / self.examples, Gaussian(self.noise_multiplier)), self.steps)


_KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in (Gaussian, PoissonSampled, Repeated, LocalSteps)}


@dataclass(frozen=True)
class Ledger:
    """How often every party released which event; immutable, so that a budget is checked on the *next* ledger.

    ``not_private`` is empty for a real run; otherwise it says why nothing may be claimed, and accountants refuse.
    """

    unit: str
    adjacency: str = "add-remove"
    spent: Mapping[str, Mapping[Event, int]] = field(default_factory=dict)
    not_private: str = ""

    def __post_init__(self) -> None:
        _check_choice("unit", self.unit, UNITS)
        _check_choice("adjacency", self.adjacency, ADJACENCIES)
        frozen = {party: MappingProxyType(dict(counts)) for party, counts in self.spent.items()}
        object.__setattr__(self, "spent", MappingProxyType(frozen))

    def plus(self, event: Event, *, parties: Iterable[str] = (EVERYBODY,), count: int = 1) -> Ledger:
        """Return the ledger after ``count`` more releases of ``event`` by each of ``parties``."""
        _check_count("count", count)
        if not isinstance(event, Event):
            raise PrivacyError(f"a ledger records events, got {event!r}")
        spent = dict(self.spent)
        for party in parties:
            counts = dict(spent.get(party, {}))
            counts[event] = counts.get(event, 0) + count
            spent[party] = counts
        return replace(self, spent=spent)

    def joined(self, other: Ledger) -> Ledger:
        """Return the least ledger that forgets nothing of either: for every party and event, the larger count."""
        if (other.unit, other.adjacency) != (self.unit, self.adjacency):
            raise PrivacyError(
                f"a ledger of {other.unit}/{other.adjacency} cannot be joined to one of {self.unit}/{self.adjacency}; "
                "resume with the mechanism the run was started with"
            )
        spent = {party: dict(counts) for party, counts in self.spent.items()}
        for party, counts in other.spent.items():
            mine = spent.setdefault(party, {})
            mine |= {event: max(count, mine.get(event, 0)) for event, count in counts.items()}
        return replace(self, spent=spent, not_private=self.not_private or other.not_private)

    def histories(self) -> set[tuple[tuple[Event, int], ...]]:
        """Return the distinct histories: order never matters, and equal parties are accounted once."""
        return {tuple(sorted(counts.items(), key=repr)) for counts in self.spent.values()}

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as plain JSON values, for checkpoints and run folders."""
        parties = {
            party: [{"event": event.to_dict(), "count": count} for event, count in counts.items()]
            for party, counts in self.spent.items()
        }
        head = {"version": 1, "unit": self.unit, "adjacency": self.adjacency, "not_private": self.not_private}
        return head | {"parties": parties}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        """Rebuild a ledger; anything unknown in it is refused, because skipping it would understate epsilon."""
        try:
            if data["version"] != 1:
                raise PrivacyError(f"this ledger has version {data['version']!r}; this release of desketch reads 1")
            spent: dict[str, dict[Event, int]] = {}
            for party, runs in data["parties"].items():
                counts = spent.setdefault(party, {})
                for run in runs:
                    event = _event_from_dict(run["event"])
                    _check_count("count", run["count"])
                    counts[event] = counts.get(event, 0) + run["count"]
            return cls(data["unit"], data["adjacency"], spent, data["not_private"])
        except (KeyError, TypeError, AttributeError) as error:
            raise PrivacyError(
                f"this is not a privacy ledger ({error!r}); expected what Ledger.to_dict writes"
            ) from None


def _event_from_dict(data: Mapping[str, Any]) -> Event:
    kind = _KINDS.get(data["kind"])
    if kind is None:
        raise PrivacyError(f"unknown event {data['kind']!r} in a ledger; known events: {', '.join(_KINDS)}")
    values = {k: _event_from_dict(v) if isinstance(v, Mapping) else v for k, v in data.items() if k != "kind"}
    return kind(**values)


def check_positive(name: str, value: float) -> None:
    """Refuse anything but a positive finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} must be a positive finite number, got {value!r}")


def check_delta(delta: float) -> None:
    """Refuse a delta outside the open interval (0, 1)."""
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise InputError(
            f"delta must lie strictly between 0 and 1, got {delta!r}; choose well below 1/(number of units)"
        )


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not a positive finite number."""
    check_positive("epsilon", epsilon)


def _check_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
