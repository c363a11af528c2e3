"""Aggregator: the server's judgement of the decoded updates of one round, before and by a robust rule.

    refer     ref_t = med(m_{t-4}, ..., m_{t-1}, med_i |s_i|), med the lower median over norms above 0 and m_t the
              median of the norms that round t let pass
    refuse    a row longer than 3 factor ref_t, or than 10^12 (no update of any model): its sender is named
    bound     a longer row than factor ref_t is scaled to that
    cap       a weight is at most the agreed size of the client; without one, at most 5 times the median claim
    combine   the rule (`fed/robust.py`)

Everything is a function of the frames the server received, in their order of rounds, so a run can be replayed and
resumed: the window is the only state.  A row within its bound and a weight within its cap keep every bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch
from torch import Tensor

from desketch.fed.robust import Rule, bounded_mean, clip_to, lower_median
from desketch.wire.rows import Rows

__all__ = ["LARGEST", "Aggregator", "Judgement"]

LARGEST = 1e12
"""The norm above which nothing is an update: float32 still squares it, and w is not lost in one step."""
WINDOW = 4
CLAIM = 5.0
REFUSE = 3.0


@dataclass(frozen=True)
class Judgement:
    """The aggregate ``y`` (None: the round is void, and why), who counted, who was refused, who was held back how."""

    y: Tensor | None
    participants: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    limited: Mapping[int, str] = field(default_factory=dict)
    void: str | None = None
    norms: Tensor | None = None  # of all rows, as they came
    mean: Tensor | None = None  # y in float64, where it is the mean of the rows and weights that came, all of them


class Aggregator:
    """A rule, what is known of the clients (``sizes``: agreed weights by id), and the window of norms."""

    def __init__(self, rule: Rule, *, sizes: Mapping[int, float] | None = None) -> None:
        self.rule, self.sizes = rule, sizes or {}
        self._window: deque[float] = deque(maxlen=WINDOW)

    def judge(self, senders: Sequence[int], rows: Rows, weights: Tensor, *, found: int = 0) -> Judgement:
        """Rows (n, b) and claimed weights (n,), in the order of ``senders``, to one row of float32.

        ``found`` counts senders whose frames could not even be decoded.
        """
        norms = torch.from_numpy(rows.norms())
        bound, limit = self._bounds(norms)
        usable = [i for i, norm in enumerate(norms.tolist()) if norm <= limit]  # NaN is not
        refused = {
            senders[i]: f"norm: got {norms[i]:.3g}, an update has at most {limit:.3g}"
            for i in sorted(set(range(len(senders))) - set(usable))
        }
        who, rule = [senders[i] for i in usable], self.rule.without(found + len(refused))
        if len(who) < rule.least():
            void = f"{rule.spec} needs {rule.least()} updates, {len(who)} came" if senders else None
            return Judgement(None, (), refused, {}, void)
        limited = {
            senders[i]: [f"norm {norms[i]:.3g} bounded at {bound:.3g}"]
            for i in (norms > bound).nonzero().flatten().tolist()
            if float(norms[i]) <= limit
        }
        counted = rows if len(usable) == len(senders) else rows.chosen(usable)
        p = self._cap(who, weights[usable].double(), limited)
        if rule.mean:
            y = bounded_mean(counted, p, norms[usable], bound)
            mean = None if refused or limited else y
            return Judgement(y.float(), tuple(who), refused, _told(limited), norms=norms, mean=mean)
        bounded = clip_to(torch.from_numpy(counted.all()).double(), bound)
        kept = [who[i] for i in rule.kept(bounded)]
        for client in sorted(set(who) - set(kept)):
            limited.setdefault(client, []).append(f"not selected by {rule.name}")
        return Judgement(rule.combine(bounded, p).float(), tuple(kept), refused, _told(limited), norms=norms)

    def _bounds(self, norms: Tensor) -> tuple[float, float]:
        """The norm to which rows are scaled down, and the one above which they are refused; remember this round's."""
        factor = self.rule.bound()
        counted = norms[(norms > 0) & (norms <= LARGEST)]
        if factor is None or not len(counted):
            return inf, LARGEST
        recent = [*self._window, lower_median(counted)]
        reference = lower_median(torch.tensor(recent, dtype=torch.float64))
        self._window.append(lower_median(counted.clamp(max=factor * reference)))
        return factor * reference, min(REFUSE * factor * reference, LARGEST)

    def _cap(self, who: Sequence[int], weights: Tensor, limited: dict[int, list[str]]) -> Tensor:
        agreed = torch.tensor([self.sizes.get(client, inf) for client in who]).double()  # float32, as weights travel
        capped = torch.minimum(weights, agreed)
        if self.rule.bound() is not None:
            claims = torch.where(agreed.isinf(), CLAIM * lower_median(capped), inf)
            capped = torch.minimum(capped, claims)
        for i in (capped < weights).nonzero().flatten().tolist():
            limited.setdefault(who[i], []).append(f"weight {weights[i]:.3g} capped at {capped[i]:.3g}")
        return capped

    def state_dict(self) -> dict[str, Any]:
        """The medians of the last rounds."""
        return {"norms": list(self._window)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; a run that was begun without a rule has no window yet."""
        self._window.clear()
        self._window.extend(float(norm) for norm in state.get("norms", ()))


def _told(limited: Mapping[int, Sequence[str]]) -> dict[int, str]:
    return {client: "; ".join(notes) for client, notes in sorted(limited.items())}
