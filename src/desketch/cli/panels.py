"""Groups of options in ``--help``: the same option stands under the same heading in every command."""

from __future__ import annotations

import inspect

import click

__all__ = ["arrange"]

# heading -> options, as words of their long names; an option that is not listed keeps its own heading
_PANELS: dict[str, str] = {
    "Data and model": "task label goal level context model train-steps",
    "Clients": "clients partition fraction local-steps eta-local batch batch-size examples",
    "Wire": "family compression b codec",
    "Privacy": "noise-std noise-at noise-multiplier clip delta epsilon sampling-rate adjacency calibrate",
    "Attacker": "known-labels solvers restarts ceiling rules attacks",
    "Effort": "seeds seed rounds every quick untuned methods target budget",
    "Output": "json html plot out curve curves fail-above",
}
_PANEL_OF = {f"--{name}": title for title, names in _PANELS.items() for name in names.split()}


def arrange(command: click.Command) -> None:
    """Give every option of the command, and of its subcommands, its heading; ranges are written once.

    Arguments are given their help again: typer below 0.21 sets it before click from 8.4 on clears it.
    """
    for inner in getattr(command, "commands", {}).values():
        arrange(inner)
    said = inspect.signature(command.callback).parameters if command.callback else {}
    for option in command.params:
        if isinstance(option, click.Argument) and option.name in said:
            option.help = getattr(said[option.name].default, "help", None)
        panel = _PANEL_OF.get(option.opts[0])
        if panel and isinstance(option, click.Option) and getattr(option, "rich_help_panel", None) is None:
            option.rich_help_panel = panel  # type: ignore[attr-defined]
        if isinstance(option.type, click.IntRange | click.FloatRange) and option.metavar is None:
            option.metavar = "INTEGER" if isinstance(option.type, click.IntRange) else "FLOAT"
