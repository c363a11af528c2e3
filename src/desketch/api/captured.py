"""A message captured by ``desketch train --capture``, made into a target for the attack.

Beside the frame, a capture holds the weights of the round and the run's public configuration.  The attacker needs
nothing else; the private examples are loaded too, because the user audits their own run, only to judge the result.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from desketch import wire
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.prior import GaussianPrior
from desketch.attack.scenario import Target
from desketch.attack.update import LocalUpdate
from desketch.attack.wiretap import codec_noise
from desketch.core.files import read_sealed
from desketch.errors import InputError
from desketch.fed.local import ClientData, batch_indices
from desketch.privacy.mechanisms import NoisySteps
from desketch.tasks import RunConfig, Setup, prepare

__all__ = ["Captured", "open_capture"]

_AGAIN = "capture the round again: desketch train --capture"
_FLOAT32 = 2.0**-24  # clients subtract float32 weights: the update carries their rounding


@dataclass(frozen=True)
class Captured:
    """A target, the attacker's prior, and what was captured."""

    target: Target
    prior: GaussianPrior
    classes: int
    about: dict[str, Any]


def open_capture(frame: Path, checkpoint: Path | None = None) -> Captured:
    """Read ``client-XXXX.frame`` and, from its own folder or ``checkpoint``, ``w.safetensors`` and ``meta.json``."""
    if not frame.is_file():
        raise InputError(f"no frame at {frame}; capture one with: desketch train --capture 1 --out DIR")
    data = frame.read_bytes()
    t, client = wire.peek(data).round, _client(frame)
    folder = _folder(frame, checkpoint, t)
    config = RunConfig(**json.loads(read_sealed(folder / "meta.json", _AGAIN))["config"])
    setup = prepare(config)
    if client >= len(setup.clients):
        raise InputError(f"{frame.name} names client {client}, the run has {len(setup.clients)}")
    if t > 1 and (beta := config.client_beta(d=setup.model.d)):
        raise InputError(
            f"the message of round {t} is a mean of the client's updates up to it (client_momentum {beta:g}), and the "
            "attack rebuilds the examples of one update; capture round 1, which is one update as it is, or train with "
            "--client-momentum 0"
        )
    channel = setup.channel()
    s = torch.from_numpy(wire.decode(data, channel.header(t, "update"))[1]).double()
    update, rows, noise = _local_update(setup, setup.clients[client], t)
    error = codec_noise(s, family=config.family, d=setup.model.d, codec=config.codec)
    w = load(read_sealed(folder / "w.safetensors", _AGAIN))["w"].double()
    x, y = setup.clients[client].x[rows].double(), setup.clients[client].y[rows]
    rounding = _FLOAT32 * float(w.square().mean().sqrt()) * config.local_steps**0.5
    seen = Observation(w, channel.sketch_at(t), s, ObservedNoise(before=math.hypot(noise, rounding), after=error))
    target = Target(Objective(update, [seen], y), x.reshape(-1), float(update(w, x.reshape(-1), y).norm()))
    about = {"frame": str(frame), "round": t, "client": client, "codec": config.codec, "examples": len(rows)}
    about |= {"unknowns": update.unknowns, "measurements": s.numel(), "noise_std": noise, "codec_std": error}
    public = GaussianPrior.fit(setup.task.x_test)
    return Captured(target, public.repeat(len(rows)), setup.task.classes, about)


def _local_update(setup: Setup, data: ClientData, t: int) -> tuple[LocalUpdate, Tensor, float]:
    """G of this client in this round, the rows of its data that entered, and the std of the noise in it."""
    config, shape = setup.config, setup.task.input_shape
    module, K, eta = setup.model.module, config.local_steps, config.eta_local
    if config.dp is None:
        index = batch_indices(setup.work, t=t, client=data.client, examples=len(data.y))
        rows, places = torch.unique(index, return_inverse=True)
        update = LocalUpdate(module, shape, batch=len(rows), K=K, eta_local=eta, schedule=places.tolist())
        return update, rows, 0.0
    privacy = setup.privacy()
    step = privacy.step if privacy else None
    if not isinstance(step, NoisySteps) or step.batch != len(data.y):
        raise InputError(
            "this run draws secret Poisson batches or clips sketches, which a captured frame does not reveal; "
            "audit the configuration instead: desketch audit --noise-std ... --clip ..."
        )
    rows = torch.arange(len(data.y))
    update = LocalUpdate(module, shape, batch=len(rows), K=K, eta_local=eta, clip=step.clip)
    std = eta * K**0.5 * step.noise_multiplier * step.clip / step.batch
    return update, rows, std


def _client(frame: Path) -> int:
    name = re.fullmatch(r"client-(\d+)\.frame", frame.name)
    if name is None:
        raise InputError(f"a captured frame is named client-NNNN.frame, got {frame.name}")
    return int(name[1])


def _folder(frame: Path, checkpoint: Path | None, t: int) -> Path:
    """Where the weights are: the folder given, the round's folder under it, or the frame's own."""
    candidates = [frame.parent] if checkpoint is None else [checkpoint, checkpoint / "capture" / f"round-{t:04d}"]
    for folder in candidates:
        if (folder / "w.safetensors").is_file() and (folder / "meta.json").is_file():
            return folder
    raise InputError(
        f"no w.safetensors with meta.json in {' or '.join(map(str, candidates))}; give --checkpoint the run folder or "
        f"its capture/round-{t:04d}"
    )
