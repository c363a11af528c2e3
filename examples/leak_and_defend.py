"""The paper's story, end to end: train with sketching, capture a message, rebuild the picture; switch on DP, fail.

    python examples/leak_and_defend.py                    two minutes, pictures in ./leak_and_defend
    python examples/leak_and_defend.py --rounds 2 --fraction 0.02        seconds

Every client holds one digit and sends one sketched gradient step a round: 80 numbers for 2,410 weights.  The
eavesdropper knows the public key and the weights.  Sketching hides nothing from them; noise does.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from desketch.api.captured import open_capture
from desketch.api.configured import train_run
from desketch.attack.audit import Attempt, attack_target
from desketch.report.pictures import comparison_png
from desketch.tasks import RunConfig, load_task

SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class Act:
    """One run: what it learnt, what it promises, and what the eavesdropper got."""

    title: str
    accuracy: float
    epsilon: float | None
    attempt: Attempt


def perform(title: str, folder: Path, *, rounds: int, fraction: float, dp: dict[str, Any] | None) -> Act:
    """Train, capture the last round, attack its first message."""
    clients = len(load_task("digits").y_train)
    settings: dict[str, Any] = {
        "task": "digits",
        "model": "mlp-tanh:32",
        "clients": clients,
        "partition": "iid",
        "fraction": fraction,
        "rounds": rounds,
        "local_steps": 1,
        "batch_size": 1,
        "eta_local": 1.0,
        "family": "srht",
        "compression": 30,
        "codec": "f32",
        "capture": (rounds,),
        "dp": dp,
    }
    config = RunConfig.load(**settings)
    summary = train_run(config, out=folder)
    frame = min((folder / "capture" / f"round-{rounds:04d}").glob("client-*.frame"))
    captured = open_capture(frame)
    attempt = attack_target(captured.target, captured.prior, ("lm", "box", "prior"), classes=captured.classes)
    (folder / "attack.png").write_bytes(comparison_png(attempt.truth.numpy(), attempt.reconstruction.numpy()))
    return Act(title, summary["test_accuracy"], summary["epsilon"], attempt)


def drawing(picture: Tensor) -> list[str]:
    """A picture in characters, two a pixel."""
    levels = (picture.reshape(picture.shape[-2:]).clamp(0, 1) * (len(SHADES) - 1)).round().long()
    return ["".join(2 * SHADES[int(v)] for v in row) for row in levels]


def show(act: Act) -> None:
    """Print the two pictures side by side, and the numbers."""
    q = act.attempt.quality
    promise = "no privacy" if act.epsilon is None else f"epsilon = {act.epsilon:.2f} at delta = 1e-5"
    verdict = "RECOVERED" if act.attempt.success else "not recovered"
    print(f"\n{act.title}: accuracy {act.accuracy:.1%}, {promise}")
    print(f"eavesdropper: {verdict}, PSNR {q.psnr:.1f} dB, SSIM {q.ssim:.2f}\n")
    print(f"  {'private picture':20}rebuilt from one message")
    for left, right in zip(drawing(act.attempt.truth[0]), drawing(act.attempt.reconstruction[0]), strict=True):
        print(f"  {left:20}{right}")


def main(arguments: list[str] | None = None) -> list[Act]:
    """Both acts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--fraction", type=float, default=0.2)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("leak_and_defend"))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    common = {"rounds": given.rounds, "fraction": given.fraction}
    dp = {"mechanism": "per-step", "unit": "example", "epsilon": given.epsilon, "delta": 1e-5, "clip": 1.0}
    acts = []
    for title, folder, privacy in (("1. sketching alone", "open", None), ("2. sketching with DP", "private", dp)):
        acts.append(perform(title, given.out / folder, dp=privacy, **common))
        show(acts[-1])
    return acts


if __name__ == "__main__":
    main()
