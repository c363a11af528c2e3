"""The reference of the command line, written from the commands themselves: ``python docs/commands.py`` prints it."""

from __future__ import annotations

import re
from collections import defaultdict

import click

from desketch.cli.app import COMMANDS, cli

__all__ = ["reference"]


def reference() -> str:
    """One section a command: what it does, how it is called, its options in their groups."""
    context = click.Context(cli, info_name="desketch")
    parts = [
        "# The command line\n",
        "`desketch COMMAND --help` prints the same. Every command with numbers has `--json`.\n",
    ]
    parts += ["| command | |", "|---|---|"]
    parts += [f"| [`{name}`](#desketch-{name}) | {line} |" for name, (line, _) in COMMANDS.items()]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts.append(_section(command, click.Context(command, info_name=name, parent=context)))
    return "\n".join(parts) + "\n"


def _section(command: click.Command, context: click.Context) -> str:
    inner = getattr(command, "commands", {})
    level = "##" if context.parent and context.parent.parent is None else "###"
    lines = [f"\n{level} {context.command_path}\n", _sentence(command.help or ""), ""]
    lines += ["```", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", ""]
    groups: dict[str, list[str]] = defaultdict(list)
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
            continue
        groups[getattr(parameter, "rich_help_panel", None) or "Options"].append(_row(parameter, context))
    for title, rows in groups.items():
        lines += [f"| {title} | |", "|---|---|", *rows, ""]
    for name, other in inner.items():
        lines.append(_section(other, click.Context(other, info_name=name, parent=context)))
    return "\n".join(lines)


def _row(parameter: click.Parameter, context: click.Context) -> str:
    if not isinstance(parameter, click.Option):
        return f"| `{parameter.human_readable_name.upper()}` | {_cell(getattr(parameter, 'help', None) or '')} |"
    kind = "" if parameter.is_flag else parameter.make_metavar(context).lower()
    default = parameter.get_default(context, call=True)
    text = _cell(parameter.help or "")
    if default not in (None, False, (), "") and not parameter.required and kind:
        text = f"{text.rstrip('.')}; default {_cell(str(default))}."
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return f"| {names} {_cell(kind)} | {text} |"


def _sentence(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _cell(text: str) -> str:
    return _sentence(text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    print(reference())
