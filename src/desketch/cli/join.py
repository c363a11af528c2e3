"""``desketch join``: one client of a run over MQTT, a long-lived process that a broker pushes orders to."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

from desketch.errors import InputError

_where = partial(typer.Option, rich_help_panel="Who and where")
_what = partial(typer.Option, rich_help_panel="Model and data")
_run = partial(typer.Option, rich_help_panel="Run")

app = typer.Typer(add_completion=False, help="Be one client of a run over MQTT.")


@app.command()
def join(
    url: str = typer.Argument(help="The run's broker: mqtts://host:port, or mqtt://127.0.0.1:port."),
    credentials: Path | None = _where(None, help="This client's folder: ca.pem, cert.pem and key.pem."),
    client: int | None = _where(None, min=0, help="Which client this is; credentials say it by themselves."),
    state: Path | None = _where(None, help="Folder for its replica, ledger and last answer; default: client-N."),
    insecure: bool = _where(False, "--insecure", help="Allow mqtt:// beyond this machine: anybody can read and write."),
    config: Path | None = _what(None, help="The run's settings (run.yaml of `desketch deploy`); flags win."),
    model: str | None = _what(None, help="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LxW or module:function."),
    data: str | None = _what(None, help="This client's own data: npz:FILE, csv:FILE, idx:FOLDER or text:FILE."),
    json_to: str | None = _run(None, "--json", help="Write what was answered to a file, or to stdout with -."),
    quiet: bool = _run(False, "--quiet", "-q", help="No progress."),
) -> None:
    """Answer the server's orders until the run is over; started again it goes on where it was.  Ctrl-C leaves.

    Without --data its data are the share of the run's task that the settings deal to it.
    """
    from desketch.cli.document import emit
    from desketch.core.units import human_bytes
    from desketch.run.signals import stop_on_signals
    from desketch.run.status import progress_line
    from desketch.tasks.config import RunConfig

    address, client_of, join_configured = _engine(url, insecure)
    number = client_of(credentials, client)
    settings = RunConfig.load(config, model=model)
    folder = state or Path(f"client-{number}")
    with stop_on_signals() as stop, progress_line(quiet=quiet) as line:
        line(f"client {number} connects to {address.url}")

        def on_answer(told: dict[str, Any]) -> None:
            moved = human_bytes(told["interface_up"] + told["interface_down"])
            line(f"client {number}: {told['answers']} orders answered, {moved} at the interface")

        told = join_configured(
            address,
            settings,
            number,
            folder,
            own_data=data,
            credentials=credentials,
            stop=lambda: stop.stop,
            on_answer=on_answer,
        )
    emit(told, json_to, lambda: _show(told, folder), quiet=quiet)
    if stop.signal and not told["over"]:
        raise typer.Exit(128 + stop.signal)


def _engine(url: str, insecure: bool) -> tuple[Any, Any, Any]:
    try:
        from desketch.integrations.mqtt.address import Address, client_of
        from desketch.integrations.mqtt.party import join_configured
    except ImportError as error:
        raise InputError(f"MQTT is not installed ({error}); pip install 'desketch[mqtt]'") from None
    return Address.parse(url, insecure=insecure), client_of, join_configured


def _show(told: dict[str, Any], folder: Path) -> None:
    from desketch.core.units import human_bytes

    end = "the run is over" if told["over"] else "left before the run was over"
    moved = f"{human_bytes(told['interface_up'])} up, {human_bytes(told['interface_down'])} down at the interface"
    typer.echo(f"client {told['client']}: {end}; {told['answers']} orders answered, {moved}; its state is in {folder}")
