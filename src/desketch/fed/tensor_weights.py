"""TensorWeights: the public weights D of a run's sketches, from what clients of Adam's kind know of their gradients.

    rounds 1, 2, 4, 8, ...   every client says log2 v_l beside its sketch, one f16 a tensor: the mean over tensor l of
                             its optimiser's second moment.  The broadcast has the median over the clients that counted
    from the round after     s_c = R_t D⁻¹ Δ_c,  u = D R_tᵀ y,  D_l proportional to v_l^(-1/4);  D = 1 in round 1

``theory/weights.py`` says why D = v^(-1/4) is best for updates of Adam, and D = 1 for those of SGD.  The scale of D
cancels in u; it is such that D⁻¹ keeps the length of an update that is alike on all coordinates, as Adam's are, so that
a bound on norms means what it did.  A median, so that a client that lies moves no weight beyond those of the honest.
D is a function of the broadcasts, so replicas agree.  Second moments are facts about the data: a private run does not
tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import ConfigError, InputError
from desketch.fed.auto_step import round16
from desketch.theory.weights import adam_weights

__all__ = ["TensorWeights", "check_tensor_weights"]

_LEAST, _MOST = 2.0**-120, 2.0**120  # what v is held within; a tensor without a gradient has v = 0


class TensorWeights:
    """D of tensors of these ``sizes``, from round to round."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self._said: dict[int, list[float]] = {}  # round -> the medians of its broadcast

    def due(self, t: int) -> int:
        """How many numbers go beside the sketch in round t: one a tensor, or none."""
        return len(self.sizes) if t > 0 and t & (t - 1) == 0 else 0

    def say(self, moments: Sequence[float] | None) -> list[float]:
        """A client's numbers, from its optimiser's mean second moments."""
        if moments is None or len(moments) != len(self.sizes):
            raise InputError(
                f"weights a tensor need every client's second moments of {len(self.sizes)} tensors, got "
                f"{'none' if moments is None else len(moments)}; train with an optimiser of Adam's kind, or set "
                "tensor_weights to none"
            )
        return [log2(min(max(_LEAST, v), _MOST)) for v in moments]  # NaN counts as none: max takes the first then

    def merge(self, said: npt.NDArray[Any]) -> list[float]:
        """What the server makes of the clients' numbers (n, tensors)."""
        medians: list[float] = np.median(said.astype(np.float64), axis=0).tolist()
        return medians

    def learn(self, t: int, medians: Sequence[float]) -> None:
        """Take in what round t's broadcast said."""
        self._said[t] = [float(x) for x in medians]

    def at(self, t: int) -> list[float] | None:
        """D of round t; None for D = 1."""
        before = [round_ for round_ in self._said if round_ < t]
        if not before:
            return None
        moments = [2.0 ** min(max(x, -120.0), 120.0) for x in self._said[max(before)]]
        D = adam_weights(moments, self.sizes)
        scale = sqrt(sum(n / (x * x) for x, n in zip(D, self.sizes, strict=True)) / sum(self.sizes))
        return [round16(scale * x) for x in D]  # libraries differ in the last bit of a power

    def state_dict(self) -> dict[str, Any]:
        """Every broadcast's numbers: few, since rounds that say them double."""
        return {str(t): list(medians) for t, medians in self._said.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._said = {int(t): [float(x) for x in medians] for t, medians in state.items()}


def check_tensor_weights(setting: str) -> None:
    """Refuse another word than auto or none."""
    if setting not in ("auto", "none"):
        raise ConfigError(f"tensor_weights is auto or none, got {setting!r}")
