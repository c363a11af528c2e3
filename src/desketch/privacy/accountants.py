"""What a ledger is worth: epsilon at a given delta, by privacy loss distributions, Rényi DP, or the paper's theorems.

``pld`` is the default and the tight one: the numerically composed privacy loss distribution of Poisson-subsampled
Gaussians (Koskela, Jälkö, Honkela 2020; Doroshenko et al. 2022), rounded pessimistically.  ``rdp`` is the independent
cross-check (Mironov 2017).  Both run on dp-accounting, imported only when asked.  ``paper-nested``, ``paper-flat`` and
``paper-subsampled`` are `paper_bounds`.

The sketch does not appear: it is a public linear map applied either before the clip (then the clip bounds it) or after
the noise (then it is post-processing).  An event that a method does not cover raises, it is never counted as nothing.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial, reduce
from typing import Any

from desketch.errors import InputError, PrivacyError
from desketch.privacy import paper_bounds
from desketch.privacy.events import Event, Gaussian, Ledger, LocalSteps, PoissonSampled, Repeated, check_delta

__all__ = ["METHODS", "PAPER_METHODS", "PLD_INTERVAL", "epsilon"]

PLD_INTERVAL = 1e-4
_WIDE = 30.0  # above this epsilon the grid of the loss distribution grows coarser instead of longer
_ROUGH = 20  # so much coarser is the grid of a rough answer

_SENSITIVITY: Mapping[str, float] = {"add-remove": 1.0, "replace-one": 2.0}  # in clips

History = tuple[tuple[Event, int], ...]
Profile = tuple[tuple[float, float, int], ...]  # (sampling rate, noise multiplier, count), sorted


def epsilon(ledger: Ledger, delta: float, *, method: str = "pld", rough: bool = False) -> float:
    """Return the smallest epsilon ``method`` proves for ``ledger`` at ``delta``: the maximum over the parties.

    ``rough``, for a search that is still far: proved as well, a little larger, and by ``pld`` many times sooner.
    """
    check_delta(delta)
    if method not in METHODS:
        raise InputError(f"unknown accounting method {method!r}; known: {', '.join(METHODS)}")
    if ledger.not_private:
        raise PrivacyError(f"no epsilon can be stated: {ledger.not_private}")
    known = _tight(partial(_pld, coarser=_ROUGH)) if rough and method == "pld" else METHODS[method]
    return known(ledger.histories(), ledger.adjacency, delta)


def _tight(
    profile_epsilon: Callable[[Profile, str, float], float],
) -> Callable[[set[History], str, float], float]:
    """Lift an accountant of one profile to the worst of many histories."""

    def worst(histories: set[History], adjacency: str, delta: float) -> float:
        profiles = _undominated({_profile(history) for history in histories})
        return max((profile_epsilon(profile, adjacency, delta) for profile in profiles), default=0.0)

    return worst


def _paper(bound: Callable[[LocalSteps, int, float], float]) -> Callable[[set[History], str, float], float]:
    """Lift one of the paper's theorems to the worst of many histories."""

    def worst(histories: set[History], adjacency: str, delta: float) -> float:
        return max((bound(*_equal_rounds(history), delta) for history in histories), default=0.0)

    return worst


def _equal_rounds(history: History) -> tuple[LocalSteps, int]:
    event, rounds = history[0]
    if len(history) != 1 or not isinstance(event, LocalSteps):
        raise PrivacyError(
            "the paper's theorems cover T equal rounds of Algorithm 2 (LocalSteps events) and nothing else; "
            f"got {[type(event).__name__ for event, _ in history]}: use pld or rdp"
        )
    return event, rounds


def _profile(history: History) -> Profile:
    """Reduce a history to how often it released a Gaussian of which rate and noise."""
    counts: Counter[tuple[float, float]] = Counter()
    for event, count in history:
        for q, z, n in _UNROLL.get(type(event), _unknown)(event):
            counts[q, z] += n * count
    return tuple(sorted((q, z, n) for (q, z), n in counts.items()))


def _unknown(event: Any) -> Profile:
    raise PrivacyError(
        f"no accountant here covers {event!r}; covered: {', '.join(kind.__name__ for kind in _UNROLL)}. "
        "Nothing is claimed about a run that released it"
    )


def _unroll_sampled(event: PoissonSampled) -> Profile:
    if not isinstance(event.event, Gaussian):
        raise PrivacyError(f"Poisson sampling is covered for one Gaussian release, got {event.event!r} inside it")
    return ((float(event.sampling_rate), float(event.event.noise_multiplier), 1),)


_UNROLL: Mapping[type[Event], Callable[[Any], Profile]] = {
    Gaussian: lambda event: ((1.0, float(event.noise_multiplier), 1),),
    PoissonSampled: _unroll_sampled,
    Repeated: lambda event: tuple((q, z, n * event.count) for q, z, n in _profile(((event.event, 1),))),
    LocalSteps: lambda event: _profile(((event.unrolled, 1),)),
}


def _undominated(profiles: set[Profile]) -> set[Profile]:
    """Drop a one-kind profile when another one samples at least as often, with no more noise, as many times."""

    def beats(a: Profile, b: Profile) -> bool:
        (qa, za, na), (qb, zb, nb) = a[0], b[0]
        return a != b and qa >= qb and za <= zb and na >= nb

    simple = {profile for profile in profiles if len(profile) == 1}
    return profiles - {b for b in simple if any(beats(a, b) for a in simple)}


@lru_cache(maxsize=4096)
def _rdp(profile: Profile, adjacency: str, delta: float) -> float:
    """Epsilon by Rényi DP; dp-accounting 0.6 forgets to double the sensitivity under replace-one, so z is halved."""
    if adjacency == "replace-one" and any(q < 1 for q, _, _ in profile):
        raise PrivacyError("rdp covers Poisson sampling under add-remove adjacency only, got replace-one: use pld")
    import dp_accounting as dpa
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    with _quiet_absl():
        for q, z, count in profile:
            gaussian = dpa.GaussianDpEvent(z / _SENSITIVITY[adjacency])
            accountant.compose(gaussian if q == 1 else dpa.PoissonSampledDpEvent(q, gaussian), count)
        return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=4096)
def _pld(profile: Profile, adjacency: str, delta: float, coarser: int = 1) -> float:
    """Epsilon by composed privacy loss distributions."""
    interval = coarser * PLD_INTERVAL * max(1.0, _yardstick(profile, adjacency, delta) / _WIDE)
    try:
        parts = [_loss_of_one(q, z, adjacency, interval).self_compose(count) for q, z, count in profile]
        return float(reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta))
    except OverflowError:  # so little noise that the loss itself leaves the doubles
        return math.inf


@lru_cache(maxsize=16)
def _loss_of_one(q: float, z: float, adjacency: str, interval: float) -> Any:
    """The loss distribution of one release; dp-accounting doubles the sensitivity under replace-one by itself."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    adjacent = {"add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace-one": NeighboringRelation.REPLACE_ONE}
    return from_gaussian_mechanism(
        z, value_discretization_interval=interval, sampling_prob=q, neighboring_relation=adjacent[adjacency]
    )


def _yardstick(profile: Profile, adjacency: str, delta: float) -> float:
    """Roughly how large epsilon is: sampling ignored where that already fits the grid, else by Rényi DP."""
    factor = _SENSITIVITY[adjacency]
    mu2 = sum(n * (factor / z) ** 2 for _, z, n in profile)
    unsampled = mu2 / 2 + math.sqrt(2 * mu2 * math.log(1 / delta))
    if unsampled <= _WIDE:
        return unsampled
    return _rdp(tuple((q, z / factor, n) for q, z, n in profile), "add-remove", delta)


@contextmanager
def _quiet_absl() -> Iterator[None]:
    """Silence the library's remarks on Rényi orders it leaves out; leaving orders out only raises epsilon."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


PAPER_METHODS = ("paper-nested", "paper-flat", "paper-subsampled")
METHODS: Mapping[str, Callable[[set[History], str, float], float]] = {
    "pld": _tight(_pld),
    "rdp": _tight(_rdp),
    "paper-nested": _paper(paper_bounds.nested),
    "paper-flat": _paper(paper_bounds.flat),
    "paper-subsampled": _paper(paper_bounds.subsampled),
}
