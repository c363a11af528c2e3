"""My model, my DataLoader, dict batches, my optimiser, my metric: a small language model over four clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import desketch as ds

TEXT = "the quick brown fox jumps over the lazy dog. " * 200
SYMBOLS = sorted(set(TEXT))
WINDOW = 16


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of text as the dicts that Hugging Face models take."""

    def __init__(self, text: str) -> None:
        self.ids = torch.tensor([SYMBOLS.index(symbol) for symbol in text])

    def __len__(self) -> int:
        return len(self.ids) - WINDOW

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[i : i + WINDOW], "labels": self.ids[i + 1 : i + 1 + WINDOW]}


class Output(NamedTuple):
    """What the model returns."""

    loss: Tensor
    logits: Tensor


class TinyModel(nn.Module):
    """An embedding, a GRU and a head; returns its own loss."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(len(SYMBOLS), width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(SYMBOLS))

    def forward(self, input_ids: Tensor, labels: Tensor) -> Output:
        """Predict every next symbol."""
        logits = self.head(self.mix(self.embed(input_ids))[0])
        return Output(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits)


def main(rounds: int = 40, out: str | Path | None = None) -> float:
    """Train, and return the perplexity on text that no client has."""
    torch.manual_seed(0)
    model = TinyModel()
    size = len(TEXT) // 5
    loaders = [DataLoader(Windows(TEXT[c * size : (c + 1) * size]), batch_size=16, shuffle=True) for c in range(4)]
    held_out: Any = next(iter(DataLoader(Windows(TEXT[4 * size :]), batch_size=256)))

    run = ds.federate(
        model,
        [ds.Client(loader) for loader in loaders],
        loss=lambda model, batch: model(**batch).loss,
        rounds=rounds,
        local_steps=10,
        optimizer=lambda params: torch.optim.AdamW(params, lr=3e-3),
        evaluate=lambda model: {"perplexity": float(model(**held_out).loss.exp())},
        wire=ds.Wire(compression=10),
        out=out,
    )
    print(f"perplexity {run.history[0]['perplexity']:.2f} -> {run.history[-1]['perplexity']:.2f}")
    print(f"{run.bytes_per_client / 1e3:.1f} kB per client")
    return float(run.history[-1]["perplexity"])


if __name__ == "__main__":
    main()
