"""Attacks: what f colluding clients send in place of their updates Δ, knowing everybody else's.

==============  ======================================================================================================
``absent``      nothing that could be used: what any rule can hope for
``sign-flip``   -100 Δ
``weight``      -Δ, with 10^6 times the weight
``gaussian``    noise 100 times as long as Δ
``label-flip``  an honest update on data whose labels y became L - 1 - y
``alie``        μ - 1.5 σ, the honest mean and standard deviation of every coordinate: hidden in their spread
                (Baruch, Baruch, Goldberg, "A little is enough", NeurIPS 2019)
``ipm``         -2 μ: the mean's inner product with the honest one turns negative, the norm stays ordinary
                (Xie, Koyejo, Gupta, "Fall of empires", UAI 2020)
==============  ======================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from desketch.fed.client import Crew, Participant
from desketch.fed.local import ClientData

__all__ = ["ATTACKS", "HostileCrew", "corrupt", "flip_labels"]

Poison = Callable[
    [Tensor, Tensor, torch.Generator], Tensor
]  # (own updates, honest updates, randomness) -> what is sent


def _absent(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return torch.full_like(own, torch.nan)


def _sign_flip(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return -100 * own


def _flip(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return -own


def _gaussian(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    noise = torch.randn(own.shape, generator=rng)
    length = torch.linalg.vector_norm(own, dim=1, keepdim=True) / torch.linalg.vector_norm(noise, dim=1, keepdim=True)
    return 100 * length * noise


def _own(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return own


def _alie(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return (honest.mean(0) - 1.5 * honest.std(0)).expand_as(own)


def _ipm(own: Tensor, honest: Tensor, rng: torch.Generator) -> Tensor:
    return (-2 * honest.mean(0)).expand_as(own)


ATTACKS: dict[str, Poison] = {
    "absent": _absent,
    "sign-flip": _sign_flip,
    "weight": _flip,
    "gaussian": _gaussian,
    "label-flip": _own,
    "alie": _alie,
    "ipm": _ipm,
}
INFLATION = {"weight": 1e6}


@dataclass(frozen=True)
class HostileCrew:
    """A crew some of whose members attack: it trains all of them, then the attackers replace what they send."""

    honest: Any
    attackers: frozenset[int]
    attack: str
    seed: int = 0

    @property
    def engine(self) -> Any:
        """The honest crew's engine."""
        return self.honest.engine

    def updates(self, w: Tensor, participants: Sequence[Any], t: int) -> tuple[Tensor, list[float]]:
        """The rows and weights that arrive."""
        crew: Crew = self.honest
        rows, weights = crew.updates(w, participants, t)
        bad = torch.tensor([p.client in self.attackers for p in participants])
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + t)
        sent = rows.clone()
        if bad.any() and not bad.all():
            sent[bad] = ATTACKS[self.attack](rows[bad], rows[~bad], rng)
        factor = INFLATION.get(self.attack, 1.0)
        return sent, [p * factor if b else p for p, b in zip(weights, bad.tolist(), strict=True)]


def corrupt(participants: Sequence[Any], attackers: frozenset[int], attack: str, seed: int = 0) -> list[Participant]:
    """The same clients, with those among ``attackers`` attacking."""
    crew = HostileCrew(participants[0].crew, attackers, attack, seed)
    return [replace(participant, crew=crew) for participant in participants]


def flip_labels(data: ClientData, classes: int) -> ClientData:
    """Labels y as L - 1 - y."""
    return replace(data, y=classes - 1 - data.y)
