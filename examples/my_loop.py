"""My own training loop: any code that changes the module in place and returns a weight."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import desketch as ds


def trainer(x: Tensor, y: Tensor) -> Callable[[nn.Module], int]:
    """A loop with what a loop may need: its own optimiser, clipping, a schedule, an early end."""

    def train(model: nn.Module) -> int:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=15)
        for _ in range(15):
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if loss.item() < 1e-4:
                break
        return len(x)

    return train


def main(rounds: int = 30) -> float:
    """Fit y = sin(3x) over four clients, each with a part of the line; return the error."""
    torch.manual_seed(0)
    line = torch.linspace(-1, 1, 400)[:, None]
    target = torch.sin(3 * line).squeeze(1)
    parts = [(line[c::4], target[c::4]) for c in range(4)]
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

    run = ds.federate(
        model,
        [ds.Client(train=trainer(x, y)) for x, y in parts],
        rounds=rounds,
        evaluate=lambda model: {"mse": float(nn.functional.mse_loss(model(line).squeeze(1), target))},
        wire=ds.Wire(compression=4, codec="int8"),
    )
    print(f"mean squared error {run.history[0]['mse']:.4f} -> {run.history[-1]['mse']:.4f}")
    return float(run.history[-1]["mse"])


if __name__ == "__main__":
    main()
