"""The bed of the language-model benchmark: texts, shards, batches, the GPT, its losses, and what a row's words mean."""

from __future__ import annotations

import json
import math
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from desketch import Key, Wire
from desketch.integrations.torch import METHODS, Signs, Sparse
from desketch.tasks.gpt import Gpt

Job = dict[str, Any]
Texts = list[dict[str, Any]]
STDLIB = "stdlib"  # a text made here: Python sources of the standard library
_STDLIB_CHARACTERS = 1_115_394  # as long as tinyshakespeare


def parse(row: str) -> tuple[str, dict[str, Any]]:
    """``"diloco:every=20,outer_lr=0.7"`` as a name and its settings."""
    name, _, rest = row.partition(":")
    settings: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return name, settings


def texts(names: list[str]) -> tuple[int, Texts]:
    """The symbols of all texts together, and each text cut into train, validation and test numbers."""
    raw = [_stdlib() if name == STDLIB else Path(name).read_text(encoding="utf-8") for name in names]
    alphabet = {c: i for i, c in enumerate(sorted(set("".join(raw))))}
    cut = []
    for text in raw:
        codes = np.array([alphabet[c] for c in text])
        a, b = int(0.8 * len(codes)), int(0.9 * len(codes))
        cut.append({"train": codes[:a], "validation": codes[a:b], "test": codes[b:]})
    return len(alphabet), cut


def _stdlib() -> str:
    """Modules of the standard library in the order of their names, the plain-ASCII ones, up to the length of a play."""
    folder, text = Path(sysconfig.get_paths()["stdlib"]), ""
    for path in sorted(folder.glob("*.py")):
        source = path.read_bytes()
        if source.isascii():
            text += "".join(c for c in source.decode() if c.isprintable() or c == "\n")
        if len(text) >= _STDLIB_CHARACTERS:
            break
    return text[:_STDLIB_CHARACTERS]


def shard(cut: Texts, rank: int, world: int, how: str) -> Tensor:
    """A rank's training numbers: a contiguous part of all texts (iid), or of one text only (text)."""
    if how == "text":
        mine = rank * len(cut) // world
        ranks = [r for r in range(world) if r * len(cut) // world == mine]
        part = np.array_split(cut[mine]["train"], len(ranks))[ranks.index(rank)]
    else:
        part = np.concatenate([np.array_split(text["train"], world)[rank] for text in cut])
    return torch.from_numpy(part)


def make_model(job: Job, symbols: int) -> Gpt:
    """The GPT every rank starts from."""
    torch.manual_seed(job["seed"])
    return Gpt(symbols=symbols, context=job["context"], layers=job["layers"], width=job["width"])


def make_optimizer(parameters: Any, job: Job, *, lr: float, fused: bool = False) -> torch.optim.AdamW:
    """The inner AdamW of all rows."""
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.99), weight_decay=0.1, fused=fused)


def make_key(job: Job) -> Key:
    """The public key of a run."""
    return Key(2023).fold_in("language model", job["seed"])


def cosine(job: Job) -> Any:
    """The part of the learning rate at a step: it rises over ``warmup`` of the run, and falls as a cosine."""
    rise = job["warmup"] * job["steps"]

    def part(step: int) -> float:
        return min(1.0, (step + 1) / (rise + 1)) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / job["steps"])))

    return part


def draws(job: Job, rank: int) -> torch.Generator:
    """What a rank's batches are drawn by."""
    return torch.Generator().manual_seed(1000 * job["seed"] + rank)


def batch(data: Tensor, job: Job, draw: torch.Generator) -> Tensor:
    """Random windows of a shard, one symbol longer than the context."""
    starts = torch.randint(len(data) - job["context"] - 1, (job["batch"],), generator=draw)
    return torch.stack([data[i : i + job["context"] + 1] for i in starts.tolist()])


def loss_of(model: Any, rows: Tensor) -> Tensor:
    """The mean loss of predicting every symbol of the windows from those before it."""
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: nn.Module, cut: Texts, part: str, job: Job) -> list[float]:
    """Mean over the texts, then each: the loss on evenly spaced windows."""
    model.eval()
    losses = []
    for text in cut:
        codes, n = torch.from_numpy(text[part]), job["context"]
        starts = torch.linspace(0, len(codes) - n - 1, min(job["windows"], len(codes) // n)).long().tolist()
        rows = torch.stack([codes[i : i + n + 1] for i in starts])
        total = sum(float(loss_of(model, some)) * len(some) for some in rows.split(64))
        losses.append(total / len(rows))
    model.train()
    return [sum(losses) / len(losses), *losses]


def wire_of_row(name: str, settings: dict[str, Any]) -> Any:
    """The wire a row names; takes what it uses out of ``settings``."""
    if name == "sketch":
        named = {name: settings.pop(name) for name in ("codec", "codec_down") if name in settings}
        return Wire(compression=settings.pop("compression"), **named)
    if name == "sparseloco":
        return Sparse(share=settings.pop("share"), decay=settings.pop("decay", 0.95))
    if name == "signs":
        return Signs(decay=settings.pop("decay", 1.0))
    return METHODS[name]
