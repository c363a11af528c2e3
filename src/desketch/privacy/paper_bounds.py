"""The paper's own privacy theorems with their hidden constants written out, and every precondition raised.

Per step, Lemma "Gaussian Mechanism": noise ``sqrt(2 ln(1.25/delta0)) * sensitivity / epsilon0`` gives
``(epsilon0, delta0)`` for ``epsilon0 < 1``.  Then Lemma "Advanced Composition": ``k`` mechanisms that are
``(epsilon, delta)`` private with ``epsilon <= 1`` are ``(sqrt(2 k ln(1/delta')) epsilon + 2 k epsilon^2, delta' + k
delta)`` private.  The theorem's ``sqrt(T K) epsilon0`` drops the constants, and without them it is false; here:

- `nested` composes K steps into a round and T rounds into a run, as the proof does (delta: 1/2 to the outer slack, 1/4
  to the inner slacks, 1/4 to the steps);
- `flat` composes the T K steps at once (delta: 1/2 slack, 1/2 steps);
- `subsampled` amplifies each step by Lemma "Amplification via Sampling" first.

The first two take the paper's sensitivity, the norm bound ``l`` of a batch mean.  It is an honest bound only for
batches of two or more, since replacing one example of B moves the mean by ``2 l / B``; the third takes ``2 l / B``.
"""

from __future__ import annotations

import math

from desketch.errors import PrivacyError
from desketch.privacy.events import LocalSteps

__all__ = ["flat", "nested", "subsampled"]


def nested(event: LocalSteps, rounds: int, delta: float) -> float:
    """Epsilon of T rounds of Algorithm 2 by the paper's two-level composition."""
    _require(event.batch >= 2, f"sensitivity l needs a batch of at least 2 (replace-one moves 2l/B), got {event.batch}")
    K, T = event.steps, rounds
    step = _gaussian(event.noise_multiplier / event.batch, delta / 4 / (K * T))
    _require(
        step < 1 / math.sqrt(K),
        f"the lemma needs epsilon per step < 1/sqrt(K) = {1 / math.sqrt(K):.4g}, got {step:.4g}",
    )
    per_round = _advanced(step, K, delta / 4 / T, what="per step")
    return _advanced(per_round, T, delta / 2, what="per round")


def flat(event: LocalSteps, rounds: int, delta: float) -> float:
    """Epsilon of the same run with the T K steps composed at once."""
    _require(event.batch >= 2, f"sensitivity l needs a batch of at least 2 (replace-one moves 2l/B), got {event.batch}")
    N = event.steps * rounds
    step = _gaussian(event.noise_multiplier / event.batch, delta / 2 / N)
    return _advanced(step, N, delta / 2, what="per step")


def subsampled(event: LocalSteps, rounds: int, delta: float) -> float:
    """Epsilon with every step amplified by sampling B of n rows with repetition, sensitivity 2 l / B."""
    N, q = event.steps * rounds, event.batch / event.examples
    _require(
        q <= 0.5,
        f"the sampling lemma needs a batch of at most half the examples, got {event.batch} of {event.examples}",
    )
    # delta0 solves 4 q exp(6 q epsilon0(delta0)) delta0 = delta / (2 N); the map contracts
    target = delta / 2 / N / (4 * q)
    _require(target < 1, f"delta = {delta:.3g} is too large for the sampling lemma's split; lower it")
    delta0 = target
    for _ in range(50):
        step = _gaussian(event.noise_multiplier / 2, delta0)
        delta0 = target * math.exp(-6 * q * step)
    step = _gaussian(event.noise_multiplier / 2, delta0)
    return _advanced(6 * q * step, N, delta / 2, what="per amplified step")


def _gaussian(noise_over_sensitivity: float, delta0: float) -> float:
    """Epsilon of one Gaussian mechanism by the textbook lemma, valid below 1."""
    epsilon0 = math.sqrt(2 * math.log(1.25 / delta0)) / noise_over_sensitivity
    _require(epsilon0 < 1, f"the Gaussian mechanism's lemma needs epsilon per step < 1, got {epsilon0:.4g}: add noise")
    return epsilon0


def _advanced(epsilon: float, k: int, slack: float, *, what: str) -> float:
    """Epsilon of ``k``-fold advanced composition."""
    _require(0 < epsilon <= 1, f"advanced composition needs epsilon {what} in (0, 1], got {epsilon:.4g}: add noise")
    return math.sqrt(2 * k * math.log(1 / slack)) * epsilon + 2 * k * epsilon**2


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise PrivacyError(why)
