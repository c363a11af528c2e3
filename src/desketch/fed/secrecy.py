"""What may be said of a round whose cohort is secret.

Client-level privacy is amplified by sampling only as long as nobody knows who was sampled.  How many were asked, how
many answered, who was refused, the bytes of all and the seconds they took tell of it, without noise.  In their place a
row names what follows from public facts alone: the expected bytes of frames, q N messages up, and down to each of them
this round's broadcast and those it missed (never more than w itself).
"""

from __future__ import annotations

from typing import Any

from desketch import wire
from desketch.fed.channel import Channel, SketchChannel
from desketch.fed.mechanism import Privacy
from desketch.fed.signal import Signal

__all__ = ["COHORT_FIELDS", "public_facts", "signal_facts"]

COHORT_FIELDS = frozenset(
    {"asked", "participants", "refused", "limited", "dropped", "late", "bytes_up", "bytes_down", "seconds"}
)


def public_facts(privacy: Privacy | None, channel: Channel, t: int) -> dict[str, Any] | None:
    """What to publish of round t in place of `COHORT_FIELDS`; None where the cohort is no secret."""
    mechanism = privacy.sketch if privacy else None
    if mechanism is None or mechanism.sampling_rate == 1 or not isinstance(channel, SketchChannel):
        return None
    q, asked = mechanism.sampling_rate, mechanism.sampling_rate * mechanism.clients
    up, down = (wire.frame_size(channel.header(t, kind), agreed=1.0) for kind in ("update", "broadcast"))
    return {
        "cohort": "secret",
        "bytes_up": round(asked * up),
        "bytes_down": round(asked * (down + _missed(q, t, down, most=4 * channel.d))),
    }


def signal_facts(signal: Signal | None, privacy: Privacy | None) -> dict[str, float]:
    """The shares of a round's row; nothing under any privacy, where they would be one more release."""
    if signal is None or privacy is not None:
        return {}
    return {"signal_share": signal.signal_share, "step_share": signal.step_share}


def _missed(q: float, t: int, frame: int, *, most: int) -> float:
    """The expected bytes of broadcasts that a client missed since it was last asked, before round t."""
    expected, away = 0.0, 1.0  # away: the probability that the last m rounds went without it
    for m in range(1, t):
        away *= 1 - q
        expected += away * (min(m * frame, most) - min((m - 1) * frame, most))
        if away < 1e-9 or m * frame > most:
            break
    return expected
