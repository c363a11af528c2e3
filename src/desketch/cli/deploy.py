"""``desketch deploy``: a ready Flower deployment in a folder, or the whole thing tried on this machine."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import typer

from desketch.core.metrics import primary
from desketch.errors import InputError

app = typer.Typer(add_completion=False, help="Write a Flower deployment, or try one on this machine.")


@app.command()
def deploy(
    folder: Path | None = typer.Argument(None, help="Where to write the deployment."),
    config: Path | None = typer.Option(None, help="The run's settings, a YAML or TOML file of `desketch train`."),
    clients: int | None = typer.Option(None, help="Number of clients, one SuperNode each."),
    rounds: int | None = typer.Option(None, help="Rounds."),
    task: str | None = typer.Option(None, help="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE."),
    model: str | None = typer.Option(None, help="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LxW or module:function."),
    host: str = typer.Option("127.0.0.1", help="Address of the SuperLink as its nodes see it."),
    port: int = typer.Option(8000, help="Port of the SuperLink."),
    secure: bool = typer.Option(
        False, "--secure", help="Only the listed nodes get in: a front with certificates made here, now; needs nginx."
    ),
    nodes: int | None = typer.Option(None, "--try", metavar="N", help="Start a SuperLink and N SuperNodes and train."),
    json_to: str | None = typer.Option(None, "--json", help="Write the rounds to a file, or to stdout with -."),
) -> None:
    """Write the project, the keys and a script for every process; with --try, run it on loopback and stop it again."""
    from desketch.integrations.flower.deploy import DeploymentPlan
    from desketch.tasks.config import RunConfig

    if folder is None and nodes is None:
        raise InputError("name a folder to write the deployment to, or use --try 3 to see it run on this machine")
    if nodes is not None and host != "127.0.0.1":
        raise InputError(f"--try stays on loopback, got --host {host}; leave the host out")
    small = {"rounds": 10, "model": "mlp:64"} if nodes is not None and config is None else {}
    given = {"clients": nodes or clients, "rounds": rounds, "task": task, "model": model}
    settings = RunConfig.load(
        config, **{**small, **{name: value for name, value in given.items() if value is not None}}
    )
    with tempfile.TemporaryDirectory(prefix="desketch-") as temporary:
        place = (folder or Path(temporary)).resolve()
        if nodes is None:
            plan = DeploymentPlan(folder=place, config=settings, host=host, port=port, secure=secure)
            plan.write()
            _show(plan)
            return
        from desketch.integrations.flower.processes import free_port

        plan = DeploymentPlan(folder=place, config=settings, port=free_port(), behind=free_port(), secure=secure)
        _finish(_try(plan, quiet=json_to == "-"), plan, json_to)


def _try(plan: Any, *, quiet: bool) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from desketch.integrations.flower.deploy import try_out

    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task("", total=plan.config.rounds, state="starting a SuperLink and its SuperNodes")

        def on_row(row: dict[str, Any]) -> None:
            metric = primary(row)
            judged = f"{metric.title} {metric.show(row[metric.name])}, " if metric else ""
            state = f"{judged}{row['bytes_up'] + row['bytes_down']} bytes, {row['seconds']:.1f} s"
            progress.update(bar, completed=row["round"], state=state)

        return try_out(plan, on_row=on_row)


def _finish(rows: list[dict[str, Any]], plan: Any, json_to: str | None) -> None:
    document = {"clients": plan.config.clients, "secure": plan.secure, "rounds": rows}
    if json_to == "-":
        sys.stdout.write(json.dumps(document) + "\n")
        return
    if json_to is not None:
        from desketch.core.files import write_durably

        write_durably(Path(json_to), (json.dumps(document, indent=1) + "\n").encode())
    from rich.console import Console
    from rich.table import Table

    last, arrays = rows[-1], 4 * rows[-1]["d"] * plan.config.clients
    metric = primary(last)
    judged = f", {metric.title} {metric.show(last[metric.name])}" if metric else ""
    title = f"{plan.config.clients} SuperNodes on loopback, {len(rows)} rounds{judged}"
    table = Table("median of a round", "", "float32 arrays", title=title, title_justify="left")
    for way in ("up", "down"):
        table.add_row(f"bytes {way}", f"{median(row[f'bytes_{way}'] for row in rows):,.0f}", f"{arrays:,}")
    for label, name in (
        ("seconds", "seconds"),
        ("  local steps, sketch and wire", "seconds_client"),
        ("  average and checkpoint", "seconds_server"),
        ("  Flower: start-up, polls, transport", "seconds_moving"),
    ):
        if name in last:  # a secret cohort's rounds do not say
            table.add_row(label, f"{median(row[name] for row in rows):.2f}")
    Console().print(table)


def _show(plan: Any) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"[bold]{plan.folder}[/] holds the deployment; run, each in its own terminal:", highlight=False)
    for name in plan.commands():
        console.print(f"  {plan.folder / name}", highlight=False, soft_wrap=True)
    if plan.secure:
        console.print(
            "Keys were made in keys/: give each node ca.pem and the four files with its name, keep the rest. "
            "1, 2 and 4 run on the server, which needs nginx (apt-get install nginx-light).",
            highlight=False,
        )
