"""Client momentum: a client sends the running mean of its updates, which keeps the signal and averages the batches out.

Late in a run most of an update is mini-batch noise, and a sketch's own noise grows with the length of what is sketched.
So client c keeps, in R^d and at home, sums that fade by beta in every round of the run, taken part in or not,

    m_c <- beta^gap m_c + Δ_c,     n_c <- beta^gap n_c + 1,     gap = rounds since its last update,

and sketches m_c / n_c, the weighted mean of all its updates: unbiased whenever they are, from the first round on
(n_c is what 1 - beta^n corrects elsewhere).  A client that lost its sums starts again with m_c = Δ_c, n_c = 1.

The mean lags behind the updates, so the automatic step cannot learn from it; beside the sketch goes one more number of
the raw update along the last public step s,

    q_c = sqrt(d/b) <Δ_c, s> / |s|,

one more row of the sketch: as linear, of the same scale, clipped and averaged with it (`desketch.fed.auto_step`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor

from desketch.core.vectors import dot, norm
from desketch.errors import ConfigError
from desketch.privacy.settings import PrivacySettings, SketchClip

__all__ = ["BETAS", "ClientMomentum", "along_last_step", "client_beta"]

BETAS = {5: 0.8, 20: 0.65}
"""What ``auto`` takes up to so many local steps: the more there are, the more batches an update averages itself."""
LEAST_FRACTION = 1.0  # of the clients asked in a round, for ``auto`` to take the mean
MOST_NUMBERS = 1 << 26  # N d: 256 MB of means, where one process keeps those of all clients


@dataclass
class _Sums:
    m: Tensor
    n: float
    t: int


class ClientMomentum:
    """The sums m_c and n_c of the clients that train in this process."""

    def __init__(self, beta: float) -> None:
        if not 0 < beta < 1:
            raise ConfigError(f"client_momentum is beta of a running mean, in (0, 1) here, got {beta}")
        self.beta = beta
        self._sums: dict[int, _Sums] = {}

    def means(self, t: int, rows: Tensor, *, clients: Sequence[int]) -> Tensor:
        """Take in round t's updates (n, d), finite ones, and return the means to be sent."""
        out = torch.empty_like(rows)
        for row, client, mean in zip(rows, clients, out, strict=True):
            sums = self._sums.get(client)
            if sums is None or sums.t >= t:  # nothing kept, or of a run that went another way
                self._sums[client] = _Sums(row.clone(), 1.0, t)
                mean.copy_(row)
                continue
            fade = self.beta ** (t - sums.t)
            sums.m.mul_(fade).add_(row)
            sums.n, sums.t = sums.n * fade + 1, t
            torch.div(sums.m, sums.n, out=mean)
        return out

    def state_dict(self) -> dict[str, Any]:
        """The sums by client."""
        return {str(client): {"m": sums.m, "n": sums.n, "t": sums.t} for client, sums in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; clients that are not in it start again."""
        self._sums = {
            int(client): _Sums(kept["m"].clone(), float(kept["n"]), int(kept["t"])) for client, kept in state.items()
        }


def along_last_step(rows: Tensor, s: Tensor | None, *, b: int) -> list[float]:
    """sqrt(d/b) <Δ_c, s>/|s| of each row; 0 before the first step."""
    length = 0.0 if s is None else norm(s)
    if s is None or length == 0:
        return [0.0] * len(rows)
    scale = sqrt(rows.shape[1] / b) / length
    return [scale * dot(row, s) for row in rows]


def client_beta(
    setting: float | Literal["auto"],
    *,
    local_steps: int | None = None,
    fraction: float = 1.0,
    plain: bool = True,
    numbers: int = 0,
    privacy: PrivacySettings | None = None,
    topology: bool = False,
) -> float:
    """The beta of a run, 0 for none: what was set, or by what every party knows.

    ``auto`` goes by ``local_steps`` (`BETAS`) where all clients are asked in every round and take ``plain`` gradient
    steps.  It is none with more steps (worse at 100), under partial participation (level) and under privacy (worse),
    where the means of all clients together, ``numbers``, would take too much memory (`MOST_NUMBERS`), and, as a
    precaution, where the local work is not known or averages itself (Adam); docs/training.md says what was measured.
    Where the mean cannot be formed ``auto`` is none and a number is refused.
    """
    if setting != "auto" and not (isinstance(setting, int | float) and 0 <= setting < 1):
        raise ConfigError(f"client_momentum: got {setting!r}, expected auto or a number in [0, 1); 0 is off")
    obstacle = _obstacle(privacy, topology)
    if setting == "auto":
        helped = plain and fraction >= LEAST_FRACTION and privacy is None and not topology
        if not helped or local_steps is None or numbers > MOST_NUMBERS:
            return 0.0
        return next((beta for most, beta in BETAS.items() if local_steps <= most), 0.0)
    if setting and obstacle:
        raise ConfigError(f"client_momentum {setting:g}: {obstacle}; set it to 0 or auto")
    return float(setting)


def _obstacle(privacy: PrivacySettings | None, topology: bool) -> str | None:
    """Why running means cannot be had at all in such a run."""
    if topology:
        return "without a server nobody tells the clients' raw updates along the last step"
    if isinstance(privacy, SketchClip) and privacy.unit == "example":
        return "example-level sketch-clip releases sketches of single rounds, and there is no update in R^d to average"
    if isinstance(privacy, SketchClip) and privacy.noise_by == "clients":
        return "noise shared out over clients needs whole steps in f32, and the number beside the sketch is of one byte"
    return None
