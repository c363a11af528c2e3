"""Aggregator: the server's judgement of the decoded updates of one round, before and by a robust rule.

    refuse    a row of norm above 10^12 is no update of any model: its sender is refused, by name
    cap       a weight is at most the agreed size of the client; without one, at most 5 times the median claim
    bound     a row is scaled to at most factor x ref_t,   ref_t = med(ref-window, med_i |s_i|),
              med the lower median and the window the medians of the last 4 rounds' accepted norms
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

from desketch.fed.robust import Rule, clip_to, lower_median

__all__ = ["LARGEST", "Aggregator", "Judgement"]

LARGEST = 1e12
"""The norm above which nothing is an update: float32 still squares it, and w is not lost in one step."""
WINDOW = 4
CLAIM = 5.0


@dataclass(frozen=True)
class Judgement:
    """The aggregate ``y`` (None: the round is void, and why), who counted, who was refused, who was held back how."""

    y: Tensor | None
    participants: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    limited: Mapping[int, str] = field(default_factory=dict)
    void: str | None = None


class Aggregator:
    """A rule, what is known of the clients (``sizes``: agreed weights by id), and the window of norms."""

    def __init__(self, rule: Rule, *, sizes: Mapping[int, float] | None = None) -> None:
        self.rule, self.sizes = rule, dict(sizes or {})
        self._window: deque[float] = deque(maxlen=WINDOW)

    def judge(self, senders: Sequence[int], values: Tensor, weights: Tensor) -> Judgement:
        """Rows (n, b) and claimed weights (n,), in the order of ``senders``, to one row of float32."""
        norms = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
        usable = [i for i, norm in enumerate(norms.tolist()) if norm <= LARGEST]  # NaN is not
        refused = {
            senders[i]: f"norm: got {norms[i]:.3g}, an update has at most {LARGEST:g}"
            for i in set(range(len(senders))) - set(usable)
        }
        who = [senders[i] for i in usable]
        if len(who) < self.rule.least():
            void = f"{self.rule.name} needs {self.rule.least()} updates, {len(who)} came" if who else None
            return Judgement(None, (), refused, {}, void)
        limited: dict[int, list[str]] = {}
        p = self._cap(who, weights[usable].double(), limited)
        rows = self._bound(who, values[usable].double(), norms[usable], limited)
        kept = [who[i] for i in self.rule.kept(rows)]
        for client in set(who) - set(kept):
            limited.setdefault(client, []).append(f"not selected by {self.rule.name}")
        told = {client: "; ".join(notes) for client, notes in sorted(limited.items())}
        return Judgement(self.rule.combine(rows, p).float(), tuple(kept), refused, told)

    def _cap(self, who: Sequence[int], weights: Tensor, limited: dict[int, list[str]]) -> Tensor:
        agreed = torch.tensor([self.sizes.get(client, inf) for client in who]).double()  # float32, as weights travel
        capped = torch.minimum(weights, agreed)
        if self.rule.bound() is not None:
            claims = torch.where(agreed.isinf(), CLAIM * lower_median(capped), inf)
            capped = torch.minimum(capped, claims)
        for i in (capped < weights).nonzero().flatten().tolist():
            limited.setdefault(who[i], []).append(f"weight {weights[i]:.3g} capped at {capped[i]:.3g}")
        return capped

    def _bound(self, who: Sequence[int], rows: Tensor, norms: Tensor, limited: dict[int, list[str]]) -> Tensor:
        positive = norms[norms > 0]
        factor = self.rule.bound()
        if factor is None or not len(positive):
            return rows
        recent = [*self._window, lower_median(positive)]
        bound = factor * lower_median(torch.tensor(recent, dtype=torch.float64))
        self._window.append(lower_median(positive.clamp(max=bound)))
        for i in (norms > bound).nonzero().flatten().tolist():
            limited.setdefault(who[i], []).append(f"norm {norms[i]:.3g} bounded at {bound:.3g}")
        return clip_to(rows, bound)

    def state_dict(self) -> dict[str, Any]:
        """The medians of the last rounds."""
        return {"norms": list(self._window)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; a run that was begun without a rule has no window yet."""
        self._window.clear()
        self._window.extend(float(norm) for norm in state.get("norms", ()))
