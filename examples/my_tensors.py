"""My model, my tensors: ten clients learn the digits, every message 30 times smaller and one bit a number."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

import desketch as ds


def main(rounds: int = 60) -> float:
    """Train, and return the accuracy on held-out digits."""
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    parts = [(x[c:1500:10], y[c:1500:10]) for c in range(10)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def accuracy(model: nn.Module) -> dict[str, float]:
        return {"accuracy": float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())}

    run = ds.federate(
        model,
        [ds.Client(x, y) for x, y in parts],
        loss=nn.functional.cross_entropy,
        rounds=rounds,
        evaluate=accuracy,
    )
    plain = 2 * 4 * sum(p.numel() for p in model.parameters()) * rounds
    print(f"accuracy {run.history[-1]['accuracy']:.1%} after {run.rounds} rounds")
    print(f"{run.bytes_per_client / 1e3:.1f} kB per client; the weights in float32 would be {plain / 1e6:.1f} MB")
    return float(run.history[-1]["accuracy"])


if __name__ == "__main__":
    main()
