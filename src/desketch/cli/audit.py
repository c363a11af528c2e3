"""``desketch audit``: what a configuration's messages give away, by attacks that really run."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from click.core import ParameterSource

from desketch.cli.document import emit
from desketch.core.files import write_durably
from desketch.errors import InputError
from desketch.run.status import progress_line

if TYPE_CHECKING:
    from torch import nn

    from desketch.attack.audit import AuditReport
    from desketch.attack.scenario import Scenario
    from desketch.tasks import Task

app = typer.Typer(
    add_completion=False, help="Say what an eavesdropper can rebuild from the messages of a configuration."
)

_LARGEST_GRAM = 3000  # largest b for which the singular values of R itself are computed
_MANY = 1000  # unknowns from which on an audit takes long; its matrices have this many columns
_NOISE_PLACES = ("gradient", "sketch")
_RAW = "none"


@app.command()
def audit(
    ctx: typer.Context,
    from_run: Path | None = typer.Option(None, help="Audit the settings of this run folder; flags win over them."),
    task: str = typer.Option("digits", help="digits, idx:FOLDER, npz:FILE or csv:FILE."),
    model: str = typer.Option("mlp-tanh:32", help="softmax, mlp:H, mlp-tanh:H, cnn, lenet or module:function."),
    family: str = typer.Option("srht", help="Sketch family, or none: the raw update, without sketching."),
    compression: float | None = typer.Option(None, help="d / b.", show_default="32, or 1 with --family none"),
    b: int | None = typer.Option(None, "--b", help="Sketch size; overrides the compression."),
    noise_std: float = typer.Option(0.0, help="Std of the noise of the privacy mechanism, per number."),
    noise_at: str = typer.Option("gradient", help="Where it is added: gradient (before the sketch) or sketch."),
    clip: float | None = typer.Option(None, help="Per-example clipping norm."),
    codec: str = typer.Option("f32", help="f32, f16, int8, int4, sign1 or trellis1 to trellis3."),
    batch: int = typer.Option(1, help="Private examples of a client."),
    clients: int = typer.Option(1, help="Clients averaged before the attacker sees the sum."),
    local_steps: int = typer.Option(1, help="Local steps K."),
    eta_local: float | None = typer.Option(None, help="Their step size; needed when K > 1."),
    rounds: int = typer.Option(1, help="Messages about the same data, each with a fresh sketch."),
    train_steps: int = typer.Option(0, help="Audit the weights after so many gradient steps on public data."),
    known_labels: bool = typer.Option(False, "--known-labels", help="Tell the attacker the labels."),
    seeds: int = typer.Option(10, min=1, help="Simulated leaks to attack."),
    solvers: str = typer.Option("lm,box,prior", help="Attacks to try in turn: lm, box, prior, lbfgs, adam, gd."),
    ceiling: float = typer.Option(20.0, help="PSNR in dB that the needed noise should keep attackers under."),
    delta: float | None = typer.Option(None, help="Delta for the epsilon of that noise; there is no default."),
    curves: bool = typer.Option(True, help="Draw the phase diagram and PSNR over rounds."),
    fail_above: float | None = typer.Option(None, help="Exit code 1 when the median PSNR exceeds this."),
    html: Path | None = typer.Option(None, help="Write the page with pictures here."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Attack simulated leaks of a configuration; print certificate, bounds, success rate and a verdict."""
    if noise_at not in _NOISE_PLACES:
        raise InputError(f"--noise-at is gradient or sketch, got {noise_at!r}")
    settings = {name: value for name, value in locals().items() if name not in ("ctx", "json_to", "html")}
    if from_run is not None:
        given = {name for name in ctx.params if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
        of_run = _of_run(from_run) | ({"b": None} if "compression" in given else {})
        settings |= {name: value for name, value in of_run.items() if name not in given}
    settings["compression"] = _compression(settings["family"], settings["compression"], settings["b"])

    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # matrices of a few hundred rows are too small to share
    from desketch.attack.audit import audit as run_audit

    began, scenario = time.perf_counter(), _scenario(settings)
    _warn_of_many(scenario)
    with progress_line() as tell:
        found = run_audit(
            scenario, seeds=seeds, solvers=solvers.split(","), ceiling=ceiling, delta=delta, progress=tell
        )
        document = _document(found, scenario, settings, tell) | {"seconds": time.perf_counter() - began}
    if html is not None:
        _write_page(document, found, html)
    emit(document, json_to, lambda: _show(document), also=[html] if html else [])
    if fail_above is not None and found.psnr_median > fail_above:
        typer.echo(f"median PSNR {found.psnr_median:.1f} dB is above the limit of {fail_above:g} dB", err=True)
        raise typer.Exit(1)


def _of_run(folder: Path) -> dict[str, Any]:
    """The settings of a run that an audit shares with it."""
    from desketch.tasks.run_settings import settings_of

    config = settings_of(
        folder,
        instead="give one of those, or the settings as flags: --model module:function (yours), --task npz:FILE (your "
        "examples), --family, --compression, --codec, --batch, --local-steps and --eta-local",
    )
    if config.batch_size is None:
        raise InputError("the run took full gradients of clients of many sizes; say --batch N, the size to audit")
    if config.dp is not None:
        raise InputError(
            "the run is private: say --clip and --noise-std, as `desketch account` or privacy.json has them"
        )
    if config.family_options:
        raise InputError(f"the run's family has options, {dict(config.family_options)}, which an audit does not take")
    names = ("task", "model", "family", "compression", "b", "codec", "local_steps", "eta_local")
    return {name: getattr(config, name) for name in names} | {"batch": config.batch_size}


def _scenario(settings: dict[str, Any]) -> Scenario:
    from desketch.attack.noise import ObservedNoise
    from desketch.attack.scenario import Data, Scenario
    from desketch.keys import Key
    from desketch.tasks import build_model, load_task

    task = load_task(settings["task"])
    data = Data(task.x_test.double(), task.y_test, task.x_train.double(), task.y_train, task.classes)
    spec, steps = settings["model"], settings["train_steps"]

    def build(seed: int) -> nn.Module:
        return _trained(build_model(spec, task, seed=seed), task, steps)

    d = sum(p.numel() for p in build_model(spec, task).parameters())
    place = {"gradient": "before", "sketch": "after"}[settings["noise_at"]]
    if settings["local_steps"] > 1 and settings["eta_local"] is None:
        raise InputError(f"--local-steps {settings['local_steps']} needs --eta-local, the size of those steps")
    return Scenario(
        data=data,
        build=build,
        family=settings["family"],
        b=None if settings["family"] == _RAW else settings["b"] or max(1, round(d / settings["compression"])),
        rounds=settings["rounds"],
        batch=settings["batch"],
        clients=settings["clients"],
        K=settings["local_steps"],
        eta_local=settings["eta_local"],
        clip=settings["clip"],
        noise=ObservedNoise(**{place: settings["noise_std"]}),
        codec=settings["codec"],
        labels_known=settings["known_labels"],
        key=Key(0),
    )


def _warn_of_many(scenario: Scenario) -> None:
    examples = scenario.batch * scenario.clients
    unknowns = scenario.data.private_x[0].numel() * examples
    if unknowns >= _MANY and examples > 1:
        warnings.warn(
            f"{unknowns} unknowns ({examples} examples in a message): this takes minutes a seed, or hours; a smaller "
            "--batch is quicker, and as a rule easier for the attacker",
            stacklevel=2,
        )


def _compression(family: str, compression: float | None, b: int | None) -> float:
    """Fill in d/b; without sketching there is nothing to compress."""
    if family == _RAW:
        if b is not None or compression not in (None, 1.0):
            raise InputError("--family none sends the raw update of d numbers; leave out --b and --compression")
        return 1.0
    if compression is None:
        return 32.0
    if not compression >= 1:
        raise InputError(f"compression is d/b and must be at least 1, got {compression}")
    return compression


def _trained(model: nn.Module, task: Task, steps: int) -> nn.Module:
    """The model after ``steps`` full-batch gradient steps on public data."""
    import torch
    from torch.nn.functional import cross_entropy

    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(steps):
        optimiser.zero_grad()
        cross_entropy(model(task.x_train), task.y_train).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def _document(found: AuditReport, scenario: Scenario, settings: dict[str, Any], tell: Any) -> dict[str, Any]:
    document = found.as_dict() | {"settings": {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}}
    if (scenario.b or 0) <= _LARGEST_GRAM and scenario.rounds == 1:
        tell("landscape")
        document["landscape"] = _landscape(scenario)
    if settings["curves"]:
        from desketch.attack.curves import phase_diagram, psnr_over_rounds

        tell("phase diagram")
        document["phase_diagram"] = [cell.as_dict() for cell in phase_diagram(scenario)]
        tell("rounds")
        document["psnr_over_rounds"] = [cell.as_dict() for cell in psnr_over_rounds(scenario)]
    return document


def _landscape(scenario: Scenario) -> dict[str, Any]:
    """Constants, promises and the observed rate for the first target, without noise."""
    from desketch.attack.landscape import estimate
    from desketch.attack.noise import ObservedNoise
    from desketch.attack.objective import Objective, Observation
    from desketch.attack.promises import observe_descent, promises

    target = scenario.target(0)
    update, y = target.objective.update, target.objective.y
    seen = target.objective.observations[0]
    exact = Observation(seen.w, seen.R, seen.sketch(update(seen.w, target.truth, y)), ObservedNoise())
    k = estimate(update, exact, target.truth, y, radius=0.1, points=4)
    rate = observe_descent(Objective(update, [exact], y), target.truth, distance=1e-3, steps=60)
    return {"constants": asdict(k), "promises": [p.as_dict() for p in promises(k)], "observed": asdict(rate)}


def _write_page(document: dict[str, Any], found: AuditReport, path: Path) -> None:
    import torch

    from desketch.report.leakage import render_audit
    from desketch.report.pictures import comparison_png

    truth = torch.cat([a.truth for a in found.attempts]).numpy()
    rebuilt = torch.cat([a.reconstruction for a in found.attempts]).numpy()
    titles = [f"{a.quality.psnr:.0f} dB" for a in found.attempts for _ in a.truth]
    page = render_audit(document, picture=comparison_png(truth, rebuilt, titles=titles))
    write_durably(path, page)


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    lo, hi = document["wilson"]
    defence = document["defence"]
    rounds = document["rounds_to_identify"]
    rows = {
        "unknowns / measurements": f"{document['unknowns']} / {document['measurements']} (rank {document['rank']})",
        "smallest relative singular value": f"{document['sigma_min']:.3g}",
        "rounds until identifiable": "never" if rounds is None else str(rounds),
        "box alone suffices with probability": f"{document['box_probability']:.2f}",
        "recovered": f"{document['success_rate']:.0%} of {document['seeds']} (95 % interval {lo:.0%} to {hi:.0%})",
        "median PSNR / SSIM": f"{document['psnr_median']:.1f} dB / {document['ssim_median']:.3f}",
        "Bayesian bound / mean picture": f"{document['psnr_bound']:.1f} dB / {document['psnr_prior']:.1f} dB",
        "labels read off": f"{document['labels_recovered']:.0%}",
        f"noise std for {defence['ceiling_psnr']:g} dB": _noise_line(defence),
        "seconds": f"{document['seconds']:.1f}",
    }
    table = Table(title=f"verdict: {document['verdict']}", show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def _noise_line(defence: dict[str, Any]) -> str:
    if defence["noise_std"] is None:
        return str(defence["note"])
    epsilon = defence.get("epsilon")
    tail = f", epsilon {epsilon:.3g} at delta {defence['delta']:g}" if epsilon is not None else ""
    return f"{defence['noise_std']:.3g} per weight{tail} (clip {defence['clip']:.3g})"
