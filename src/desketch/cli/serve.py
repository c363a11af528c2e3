"""``desketch serve``: the server of a run over MQTT; its folder ends as a run folder, with model and report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

from desketch.errors import InputError

_where = partial(typer.Option, rich_help_panel="Who and where")
_what = partial(typer.Option, rich_help_panel="Run")
_how = partial(typer.Option, rich_help_panel="Rounds")

app = typer.Typer(add_completion=False, help="Serve a run over MQTT.")


@app.command()
def serve(
    url: str = typer.Argument(help="The run's broker: mqtts://host:port, or mqtt://127.0.0.1:port."),
    credentials: Path | None = _where(None, help="The server's folder: ca.pem, cert.pem and key.pem."),
    insecure: bool = _where(False, "--insecure", help="Allow mqtt:// beyond this machine: anybody can read and write."),
    config: Path | None = _what(None, help="The run's settings, as every client has them; flags win."),
    clients: int | None = _what(None, help="Number of clients N."),
    rounds: int | None = _what(None, help="Rounds T."),
    task: str | None = _what(None, help="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE."),
    model: str | None = _what(None, help="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LxW or module:function."),
    out: Path | None = _what(None, help="Run folder; one that holds rounds of this run is gone on with."),
    round_timeout: float = _how(300.0, min=0.1, help="Seconds until a round goes on without silent clients."),
    wait_for: int | None = _how(None, min=1, help="Clients to wait for before a round; default: all."),
    quiet: bool = _how(False, "--quiet", "-q", help="No progress, no table."),
    json_to: str | None = _how(None, "--json", help="Write the summary to a file, or to stdout with -."),
) -> None:
    """Ask the clients for updates, round after round, and tell them when the run is over."""
    from desketch.api.configured import run_path
    from desketch.cli.document import emit
    from desketch.cli.train_show import show
    from desketch.core.rows import read_rows
    from desketch.fed.rounds import Observers
    from desketch.run.progress import Progress
    from desketch.run.signals import stop_on_signals
    from desketch.tasks.config import RunConfig

    address, serve_over_mqtt = _engine(url, insecure)
    settings = RunConfig.load(config, clients=clients, rounds=rounds, task=task, model=model)
    path = run_path(settings, out)
    past = read_rows(path / "metrics.jsonl").rows
    with stop_on_signals() as stop, Progress(settings.rounds, done=len(past), rows=past, show=not quiet) as bar:
        summary = serve_over_mqtt(
            address,
            settings,
            path,
            credentials=credentials,
            nodes=wait_for,
            seconds=round_timeout,
            observer=Observers(bar, stop),
        )
    if summary is None and stop.signal:
        typer.echo(f"{stop.signal.name} ended the wait for the broker; nothing was begun", err=True)
        raise typer.Exit(128 + stop.signal)
    emit(summary, json_to, lambda: show(summary, path, command="desketch serve"), quiet=quiet)
    if stop.signal and summary["rounds"] < settings.rounds:
        typer.echo(
            f"{stop.signal.name} ended the run after round {summary['rounds']}; the same command goes on", err=True
        )
        raise typer.Exit(128 + stop.signal)


def _engine(url: str, insecure: bool) -> tuple[Any, Any]:
    try:
        from desketch.integrations.mqtt.address import Address
        from desketch.integrations.mqtt.party import serve_over_mqtt
    except ImportError as error:
        raise InputError(f"MQTT is not installed ({error}); pip install 'desketch[mqtt]'") from None
    return Address.parse(url, insecure=insecure), serve_over_mqtt
