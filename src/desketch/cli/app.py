"""The ``desketch`` command: a table of subcommands, each imported only when it is asked for."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
from rich.console import Console
from rich.markup import escape

from desketch.cli.panels import arrange
from desketch.cli.version import version_option
from desketch.core.files import check_writable
from desketch.errors import DesketchError, InputError

__all__ = ["COMMANDS", "main"]

# name -> (one line of help, module that holds `command`); the order is the order of `desketch --help`
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("Train a model across clients; every message is a sketch.", "desketch.cli.train"),
    "account": ("State the epsilon of a run, or calibrate its noise.", "desketch.cli.account"),
    "attack": ("Rebuild private examples from a captured message.", "desketch.cli.attack"),
    "audit-dp": ("Attack the private mechanisms and check their claims.", "desketch.cli.audit_dp"),
    "audit": ("Say what a configuration's messages give away.", "desketch.cli.audit"),
    "bench": ("Measure the kernels or the engine against peers.", "desketch.cli.bench"),
    "deploy": ("Write a deployment (Flower or MQTT), or try one on this machine.", "desketch.cli.deploy"),
    "join": ("Be one client of a run over MQTT.", "desketch.cli.join"),
    "serve": ("Serve a run over MQTT.", "desketch.cli.serve"),
    "compare": ("Bytes to reach and hold a target, against other methods.", "desketch.cli.compare"),
    "plan": ("Choose sketch, local steps and step sizes for a target and a link.", "desketch.cli.plan"),
    "verify": ("Check the theorems against experiments.", "desketch.cli.verify"),
    "watch": ("See the report of a run in the browser while it goes on.", "desketch.cli.watch"),
    "report": ("Write the report of a run folder again.", "desketch.cli.report"),
}


_PICTURES = (".png", ".svg", ".pdf")
_OUTPUTS = frozenset({"--json", "--html", "--plot", "--out"})  # what a command writes when it is done; out is a folder


class _LazyGroup(click.Group):
    """List every command from the table; import a command's module when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print "Aborted!" and end with 1
            click.echo("interrupted", err=True)
            ctx.exit(130)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], COMMANDS, n=2) if args[0] not in COMMANDS else []
        if close:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        app = import_module(COMMANDS[name][1]).app
        command = typer.main.get_command(app)
        command.name = name
        _check_outputs(command)
        arrange(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (line, _) in COMMANDS.items()])


@click.group(cls=_LazyGroup, help="Train over thin wires: sketched, quantised, private, audited.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=version_option,
    help="Show the version, the kernels, torch and Flower, and exit.",
)
def cli() -> None:
    """Entry of the command tree."""


def _check_outputs(command: click.Command) -> None:
    """Have every option that names a file to write looked at while options are read, not hours later."""
    for inner in getattr(command, "commands", {}).values():
        _check_outputs(inner)
    for option in command.params:
        if _OUTPUTS & set(option.opts):
            option.callback = _writable


def _writable(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    if value not in (None, "-"):
        if "--plot" in option.opts and Path(value).suffix not in _PICTURES:
            raise InputError(f"--plot writes {', '.join(_PICTURES)}, by the name's ending; got {value}")
        try:
            check_writable(Path(value) / "file" if "--out" in option.opts else Path(value))
        except OSError as error:
            raise InputError(
                f"cannot write {option.opts[0]} {value} ({error.strerror}); choose another place"
            ) from error
    return value


def main() -> None:
    """Run the command; what is wrong outside the program becomes one clear message and exit code 2, never a traceback.

    DESKETCH_DEBUG=1 in the environment shows the traceback all the same.
    """
    console = Console(stderr=True)

    def say(style: str, title: str, text: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            console.print(f"[{style}]{title}[/]: {escape(str(text))}", highlight=False, soft_wrap=True)

    warnings.showwarning = lambda message, *_, **__: say("bold yellow", "warning", message)
    try:
        cli()
    except (DesketchError, OSError) as error:
        if os.environ.get("DESKETCH_DEBUG"):
            raise
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        say("bold red", type(error).__name__, text)
        sys.exit(2)
