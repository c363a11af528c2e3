"""``desketch attack``: rebuild private examples from one captured message, or from a synthetic set-up."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from desketch.cli.document import emit
from desketch.core.files import write_durably
from desketch.errors import InputError
from desketch.run.status import progress_line

if TYPE_CHECKING:
    from desketch.api.captured import Captured
    from desketch.attack.audit import Attempt

app = typer.Typer(add_completion=False, help="Rebuild private examples from a captured message.")


@app.command()
def attack(
    frame: Path | None = typer.Option(None, help="A client-NNNN.frame written by desketch train --capture."),
    checkpoint: Path | None = typer.Option(None, help="Its run folder or round folder; default: beside the frame."),
    out: Path = typer.Option(..., help="Folder for pictures, arrays and numbers."),
    task: str = typer.Option("digits", help="Synthetic: digits, idx:FOLDER, npz:FILE or csv:FILE."),
    model: str = typer.Option("mlp-tanh:32", help="Synthetic: the model."),
    family: str = typer.Option("srht", help="Synthetic: sketch family."),
    compression: float = typer.Option(32.0, min=1.0, help="Synthetic: d / b."),
    batch: int = typer.Option(1, min=1, help="Synthetic: private examples in the message."),
    noise_std: float = typer.Option(0.0, min=0.0, help="Synthetic: noise per weight before the sketch."),
    codec: str = typer.Option("f32", help="Synthetic: codec of the wire."),
    seed: int = typer.Option(
        0, min=0, max=2**31 - 1, help="Synthetic: which weights and examples; also of the starts."
    ),
    solvers: str = typer.Option("lm,box,prior", help="Attacks to try in turn: lm, box, prior, lbfgs, adam, gd."),
    restarts: int = typer.Option(3, min=1, help="Starts per solver and label guess."),
    known_labels: bool = typer.Option(False, "--known-labels", help="Tell the attacker the labels."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Attack one message; save original, reconstruction and error, with PSNR, MSE and SSIM."""
    if frame is None and checkpoint is not None:
        raise InputError("--checkpoint belongs to a captured --frame; give both, or neither for a synthetic message")

    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    from desketch.attack.audit import attack_target

    captured = _synthetic(locals()) if frame is None else _captured(frame, checkpoint)
    with progress_line() as tell:
        attempt = attack_target(
            captured.target,
            captured.prior,
            solvers.split(","),
            classes=None if known_labels else captured.classes,
            restarts=restarts,
            seed=seed,
            progress=lambda i, loss: tell(f"iteration {i}, loss {loss:.3e}"),
        )
    document = _document(captured, attempt)
    _save(out, attempt, document)
    emit(document, json_to, lambda: _show(document, out))


def _captured(frame: Path, checkpoint: Path | None) -> Captured:
    from desketch.api.captured import open_capture

    return open_capture(frame, checkpoint)


def _synthetic(settings: dict[str, Any]) -> Captured:
    from desketch.api.captured import Captured
    from desketch.attack.noise import ObservedNoise
    from desketch.attack.scenario import Data, Scenario
    from desketch.tasks import build_model, load_task

    task, spec = load_task(settings["task"]), settings["model"]
    d = sum(p.numel() for p in build_model(spec, task).parameters())
    scenario = Scenario(
        data=Data(task.x_test.double(), task.y_test, task.x_train.double(), task.y_train, task.classes),
        build=lambda seed: build_model(spec, task, seed=seed),
        family=settings["family"],
        b=max(1, round(d / settings["compression"])),
        batch=settings["batch"],
        noise=ObservedNoise(before=settings["noise_std"]),
        codec=settings["codec"],
    )
    target = scenario.target(settings["seed"])
    about = {"task": settings["task"], "model": spec, "family": scenario.family, "codec": scenario.codec}
    about |= {"examples": scenario.batch, "unknowns": target.objective.unknowns, "noise_std": scenario.noise.before}
    about |= {"measurements": target.objective.measurements}
    return Captured(target, scenario.prior(), task.classes, about)


def _document(captured: Captured, attempt: Attempt) -> dict[str, Any]:
    from desketch.attack.bounds import bayesian_at, certify
    from desketch.attack.quality import psnr

    certificate = certify(captured.target.objective, captured.target.truth, captured.prior)
    bound = bayesian_at(captured.target.objective, captured.target.truth, captured.prior)
    return {
        **captured.about,
        "identifiable": certificate.identifiable,
        "sigma_min": certificate.sigma_min,
        "solver": attempt.solver,
        "success": attempt.success,
        **asdict(attempt.quality),
        "psnr_bound": psnr(bound),
        "psnr_prior": psnr(captured.prior.variance),
        "labels_right": attempt.labels_right,
        "loss": attempt.loss,
        "seconds": attempt.seconds,
    }


def _save(out: Path, attempt: Attempt, document: dict[str, Any]) -> None:
    """Write attack.json, arrays.npz and attack.png, each at once."""
    import io
    import json

    import numpy as np

    from desketch.report.pictures import comparison_png

    arrays, truth, rebuilt = io.BytesIO(), attempt.truth.numpy(), attempt.reconstruction.numpy()
    np.savez_compressed(arrays, original=truth, reconstruction=rebuilt)
    files = {
        "attack.json": (json.dumps(document, indent=1) + "\n").encode(),
        "arrays.npz": arrays.getvalue(),
        "attack.png": comparison_png(truth, rebuilt),
    }
    for name, content in files.items():
        write_durably(out / name, content)


def _show(document: dict[str, Any], out: Path) -> None:
    from rich.console import Console

    outcome = "recovered" if document["success"] else "not recovered"
    Console().print(
        f"[bold]{outcome}[/]: {document['examples']} example(s), {document['unknowns']} unknowns from "
        f"{document['measurements']} numbers by {document['solver']} in {document['seconds']:.1f} s\n"
        f"PSNR {document['psnr']:.1f} dB, SSIM {document['ssim']:.3f}, MSE {document['mse']:.2e}; Bayesian bound "
        f"{document['psnr_bound']:.1f} dB, mean picture {document['psnr_prior']:.1f} dB\n"
        f"pictures in {out / 'attack.png'}"
    )
