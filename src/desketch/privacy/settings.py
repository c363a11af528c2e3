"""What a user asks for: one of two mechanisms, each with its clip, its delta, and a budget or a noise multiplier.

Nothing has a default that would decide how private a run is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from desketch.errors import InputError
from desketch.privacy.events import check_delta, check_epsilon, check_positive

__all__ = ["PerStep", "PrivacySettings", "SketchClip"]


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """``epsilon`` is a budget, enforced before every release; the noise is calibrated to it unless it is given.

    ``not_private_seed`` is for tests only: reproducible noise, which marks the run NOT PRIVATE.
    """

    clip: float
    delta: float
    epsilon: float | None = None
    noise_multiplier: float | None = None
    not_private_seed: int | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_positive("clip", self.clip)
        if self.epsilon is None and self.noise_multiplier is None:
            raise InputError("privacy needs a budget epsilon or a noise multiplier, or both; there is no default")
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        if self.noise_multiplier is not None:
            check_positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class PerStep(_Settings):
    """Algorithm 2: every local step clips each example's gradient to ``clip`` and adds noise.  Protects one example.

    >>> PerStep(clip=1.0, epsilon=4, delta=1e-5).unit
    'example'
    """

    @property
    def mechanism(self) -> str:
        """Its name in configurations."""
        return "per-step"

    @property
    def unit(self) -> str:
        """What is protected."""
        return "example"


@dataclass(frozen=True, kw_only=True)
class SketchClip(_Settings):
    """The sketch itself is clipped to ``clip``, so that its sensitivity is exact for every family.

    ``unit="client"`` protects all data of one client, whatever its training loop; ``unit="example"`` one example, for
    one local step a round.  ``noise_by="clients"`` shares the noise out, so that the server need not be trusted.
    """

    unit: Literal["client", "example"] = "client"
    noise_by: Literal["server", "clients"] = "server"

    @property
    def mechanism(self) -> str:
        """Its name in configurations."""
        return "sketch-clip"


PrivacySettings = PerStep | SketchClip
