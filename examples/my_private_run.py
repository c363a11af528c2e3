"""Private, resumable, watched: forty clients, each protected as a whole, by clipping and noising sketches."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import desketch as ds


def main(rounds: int = 40, out: str | Path | None = None) -> float | None:
    """Train under a budget, and return the epsilon that was spent."""
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    run = ds.federate(
        model,
        [ds.Client(x[c:1500:40], y[c:1500:40]) for c in range(40)],
        loss=nn.functional.cross_entropy,
        rounds=rounds,
        fraction=0.5,
        evaluate=lambda model: {"accuracy": float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())},
        privacy=ds.SketchClip(clip=1.0, epsilon=8, delta=1e-5),
        out=out,
        resume=out is not None,
        callbacks=[lambda record: record.round % 10 or print(f"round {record.round}: epsilon {record.epsilon:.2f}")],
    )
    print(f"accuracy {run.history[-1]['accuracy']:.1%} with ({run.epsilon:.2f}, {run.delta})-DP for every client")
    return run.epsilon


if __name__ == "__main__":
    main()
