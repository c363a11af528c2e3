"""``desketch deploy``: a deployment over Flower or MQTT in a folder, or the whole thing tried on this machine."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import typer

from desketch.core.metrics import primary
from desketch.errors import InputError

_run = partial(typer.Option, rich_help_panel="Run")
_place = partial(typer.Option, rich_help_panel="Where and how")
_here = partial(typer.Option, rich_help_panel="On this machine")

app = typer.Typer(add_completion=False, help="Write a deployment (Flower or MQTT), or try one on this machine.")

PORTS = {"flower": 8000, "mqtt": 8883}


@app.command()
def deploy(
    folder: Path | None = typer.Argument(None, help="Where to write the deployment."),
    engine: str = _place("flower", help="What moves the bytes: flower, or mqtt (fewest bytes, no polling)."),
    host: str = _place("127.0.0.1", help="Address of the SuperLink or the broker, as clients see it."),
    port: int | None = _place(None, help="Its port; default 8000 (flower), 8883 (mqtt)."),
    web_port: int | None = _place(None, help="Port of a WebSocket listener of the broker (mqtt)."),
    secure: bool = _place(
        False, "--secure", help="Only the listed clients get in, by certificates made here, now; flower needs nginx."
    ),
    config: Path | None = _run(None, help="The run's settings, a YAML or TOML file of `desketch train`."),
    clients: int | None = _run(None, help="Number of clients, one process each."),
    rounds: int | None = _run(None, help="Rounds."),
    task: str | None = _run(None, help="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE."),
    model: str | None = _run(None, help="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LxW or module:function."),
    nodes: int | None = _here(
        None, "--try", metavar="N", min=1, help="Start everything with N clients, train, stop it again."
    ),
    web: bool = _here(False, "--web", help="With --try: one more client, a browser tab; prints its address (mqtt)."),
    json_to: str | None = _here(None, "--json", help="Write the rounds to a file, or to stdout with -."),
) -> None:
    """Write settings, keys and a script for every process; with --try, run it on loopback and stop it again."""
    from desketch.tasks.config import RunConfig

    if engine not in PORTS:
        raise InputError(f"--engine is flower or mqtt, got {engine!r}")
    if (web or web_port is not None) and engine != "mqtt":
        raise InputError("--web and --web-port need a broker; use them with --engine mqtt")
    if web and nodes is None:
        raise InputError("--web is a tab of a run on this machine; use it with --try 2 (--web-port adds a listener)")
    if folder is None and nodes is None:
        raise InputError("name a folder to write the deployment to, or use --try 3 to see it run on this machine")
    if json_to is not None and nodes is None:
        raise InputError("--json writes the rounds of a run on this machine; use it with --try 3")
    if clients is not None and nodes is not None:
        raise InputError(f"--try {nodes} says how many clients there are; leave --clients {clients} out")
    if nodes is not None and host != "127.0.0.1":
        raise InputError(f"--try stays on loopback, got --host {host}; leave the host out")
    small = {"rounds": 200 if web else 10, "model": "mlp:64"} if nodes is not None and config is None else {}
    given = {"clients": nodes + web if nodes else clients, "rounds": rounds, "task": task, "model": model}
    settings = RunConfig.load(
        config, **{**small, **{name: value for name, value in given.items() if value is not None}}
    )
    with tempfile.TemporaryDirectory(prefix="desketch-") as temporary:
        place = (folder or Path(temporary)).resolve()
        if nodes is None:
            plan = _plan(engine, place, settings, host=host, port=port or PORTS[engine], secure=secure, web=web_port)
            plan.write()
            _show(plan, engine)
            return
        from desketch.integrations.processes import free_port

        tab = _tab(settings) if web else {}
        plan = _plan(engine, place, settings, port=port or free_port(), secure=secure, web=web_port, **tab)
        _finish(_try(plan, engine), plan, engine, json_to)


def _tab(config: Any) -> dict[str, Any]:
    """The last client is a tab; one that is closed holds the others up for ten seconds and no more."""
    from desketch.integrations.mqtt.broker import Tab
    from desketch.integrations.mqtt.web import check_page

    check_page(config)
    return {"tab": Tab(config.clients - 1), "round_timeout": 10.0}


def _plan(engine: str, folder: Path, config: Any, *, web: int | None, **options: Any) -> Any:
    try:
        if engine == "mqtt":
            from desketch.integrations.mqtt.deploy import MqttPlan

            return MqttPlan(folder=folder, config=config, web=web, **options)
        from desketch.integrations.flower.deploy import DeploymentPlan
        from desketch.integrations.processes import free_port

        behind = 0 if "host" in options else free_port()
        return DeploymentPlan(folder=folder, config=config, behind=behind, **options)
    except ImportError as error:
        raise InputError(f"the engine {engine} is not installed ({error}); pip install 'desketch[{engine}]'") from None


def _try(plan: Any, engine: str) -> list[dict[str, Any]]:
    from importlib import import_module

    from desketch.core.units import human_bytes
    from desketch.run.status import progress_line

    starting = {"flower": "starting a SuperLink and its SuperNodes", "mqtt": "starting a broker and its clients"}
    with progress_line() as tell:
        tell(starting[engine])

        def on_row(row: dict[str, Any]) -> None:
            metric = primary(row)
            judged = f"{metric.title} {metric.show(row[metric.name])}, " if metric else ""
            state = f"{row['round']}/{plan.config.rounds} rounds: {judged}"
            state += f"{row['bytes_up'] + row['bytes_down']} bytes, {row['seconds']:.1f} s"
            if "interface_up" in row:
                state += f", {human_bytes(row['interface_up'] + row['interface_down'])} at the interface so far"
            tell(state)

        def on_page(url: str) -> None:
            typer.echo(f"open {url} in a browser on this machine: the tab is client {plan.tab.client}", err=True)
            tell("waiting for the tab")

        told = {"on_page": on_page} if engine == "mqtt" else {}
        try_out = import_module(f"desketch.integrations.{engine}.deploy").try_out
        rows: list[dict[str, Any]] = try_out(plan, on_row=on_row, **told)
        return rows


def _finish(rows: list[dict[str, Any]], plan: Any, engine: str, json_to: str | None) -> None:
    from desketch.cli.document import emit

    document = {"engine": engine, "clients": plan.config.clients, "secure": plan.secure, "rounds": rows}
    emit(document, json_to, lambda: _table(rows, plan, engine))


def _table(rows: list[dict[str, Any]], plan: Any, engine: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from desketch.core.units import human_bytes

    last, arrays = rows[-1], 4 * rows[-1]["d"] * plan.config.clients
    metric = primary(last)
    judged = f", {metric.title} {metric.show(last[metric.name])}" if metric else ""
    who, moving = {
        "flower": ("SuperNodes", "Flower: start-up, polls, transport"),
        "mqtt": ("MQTT clients", "MQTT: broker and transport"),
    }[engine]
    title = f"{plan.config.clients} {who} on loopback, {len(rows)} rounds{judged}"
    table = Table("median of a round", "", "float32 arrays", title=title, title_justify="left")
    for way in ("up", "down"):
        table.add_row(f"bytes {way}", f"{median(row[f'bytes_{way}'] for row in rows):,.0f}", f"{arrays:,}")
    for label, name in (
        ("seconds", "seconds"),
        ("  local steps, sketch and wire", "seconds_client"),
        ("  average and checkpoint", "seconds_server"),
        (f"  {moving}", "seconds_moving"),
    ):
        if name in last:  # a secret cohort's rounds do not say
            table.add_row(label, f"{median(row[name] for row in rows):.2f}")
    console = Console()
    console.print(table)
    if "interface_up" in last:
        up, down = human_bytes(last["interface_up"]), human_bytes(last["interface_down"])
        console.print(
            f"at the clients' interfaces, connecting, headers and acknowledgements included: {up} up, {down} down",
            highlight=False,
        )


def _show(plan: Any, engine: str) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"[bold]{plan.folder}[/] holds the deployment; run, each in its own terminal:", highlight=False)
    for name in plan.commands():
        console.print(f"  {plan.folder / name}", highlight=False, soft_wrap=True)
    if not plan.secure:
        return
    told = {
        "flower": "Keys were made in keys/: give each node ca.pem and the four files with its name, keep the rest. "
        "1, 2 and 4 run on the server, which needs nginx (apt-get install nginx-light).",
        "mqtt": "Credentials were made in keys/: give each client run.yaml, its script and its folder keys/client-N, "
        "nothing else. 1 runs at the address given, and needs mosquitto (apt-get install mosquitto).",
    }
    console.print(told[engine], highlight=False)
