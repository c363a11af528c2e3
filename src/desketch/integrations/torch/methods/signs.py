"""Signs: one bit a parameter each way, and a memory of what the bits did not say, on both ways.

    p_w = D⁻¹ (theta_w - theta) + e_w,     send C(p_w),     e_w = p_w - C(p_w)                  every rank
    q   = mean_w C(p_w) + f,               send C(q),       f   = q - C(q)                      who averages a part
    u   = D C(q)

C is the one-bit code behind a random rotation, scaled down to its best mean square: of p it keeps 2/pi = 64 % of the
energy, and the memory delivers the rest in the rounds that follow (error feedback: Seide et al. 2014; Karimireddy et
al. 2019; both ways: Tang et al., DoubleSqueeze, 2019).  D_l = v_l^(-1/4) as for the sketch (``theory/weights.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from desketch.errors import ConfigError
from desketch.integrations.torch.exchange import Exchange, Feedback, gather_bytes, mean_bytes
from desketch.integrations.torch.methods.base import Delta, Heard, Method, Pieces, Said, whole
from desketch.integrations.torch.methods.weighing import Moments, Weighing
from desketch.keys import Key

__all__ = ["Signs", "SignsMethod"]

_CODEC = "sign1"
_KEPT = 2 / np.pi  # of the unbiased code: the scale that errs least


@dataclass(frozen=True, kw_only=True)
class Signs:
    """One bit a parameter; ``decay`` is what the memories keep a round."""

    decay: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ConfigError(f"decay is what the memory keeps a round, from 0 to 1, got {self.decay}")


class SignsMethod(Method):
    """`Signs` of d numbers; ``moments`` is None for D = 1.

    A memory delays: in a linear model, momentum 0.9 and lr 0.7 make the loop through theta unstable where inner steps
    undo 60 % of a displacement (an eigenvalue passes 1), so the momentum is 0.5.
    """

    lr: ClassVar[float] = 1.0
    momentum: ClassVar[float] = 0.5

    def __init__(self, wire: Signs, *, sizes: Sequence[int], key: Key, moments: Moments | None) -> None:
        self.wire, self.d, self.key = wire, sum(sizes), key
        self.weighing = Weighing(sizes, key=key, moments=moments)
        self.feedback = Feedback(decay=wire.decay, kept=_KEPT)

    def prepare(self, t: int, delta: Delta) -> Said:
        """One f16 a tensor: the root of its mean second moment."""
        return Said(notes=self.weighing.notes())

    def merge(self, t: int, delta: Delta, said: Said, heard: Heard, exchange: Exchange) -> Pieces:
        """Weigh, exchange d bits with memory, weigh back."""
        D, key = self.weighing.weights(heard), self.key.fold_in("outer", t)
        x = delta[:]
        self.weighing.scale(x, [1 / weight for weight in D])
        p = x.numpy()
        exchange.mean(p, key=key, up=_CODEC, down=_CODEC, heard=heard.ranks, feedback=self.feedback, out=p)
        self.weighing.scale(x, D)
        return whole(x)

    def commit(self) -> None:
        """The memories move on."""
        self.feedback.commit()

    def round_bytes(self, ranks: int) -> float:
        """The exchange of d bits, and the notes."""
        return mean_bytes(self.d, ranks, up=_CODEC, down=_CODEC) + gather_bytes(self.weighing.note_bytes, ranks)

    def state_dict(self) -> dict[str, Any]:
        """The memories of this rank."""
        return self.feedback.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.feedback.load_state_dict(state)
