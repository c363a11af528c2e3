"""``desketch --version``: what is installed here, and why the kernels are missing if they are."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from desketch import __version__
from desketch.core import compiled
from desketch.errors import SketchError

__all__ = ["text", "version_option"]


def text() -> str:
    """The lines; versions are read from the packages' metadata, so that nothing heavy is imported."""
    facts = {
        "kernels": _kernels(),
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "torch": _version("torch", "not installed"),
        "paho": _version("paho-mqtt", "not installed; needed for MQTT only: pip install 'desketch[mqtt]'"),
        "flwr": _version("flwr", "not installed; needed for Flower only: pip install 'desketch[flower]'"),
    }
    return "\n".join([f"desketch {__version__}", *(f"  {name:8} {fact}" for name, fact in facts.items())])


def version_option(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the lines and end, as an eager option of the command group."""
    if wanted and not context.resilient_parsing:
        click.echo(text())
        context.exit()


def _kernels() -> str:
    if not compiled.available():
        return f"missing: {compiled.absence()}; the slower reference path draws the same sketches"
    try:
        if not compiled.wanted():
            return "compiled, but DESKETCH_KERNELS or DESKETCH_PURE asks for the reference path"
        chosen = compiled.isa()
    except SketchError as error:
        return f"compiled, but refused: {error}"
    others = [isa for isa in compiled.isas() if isa != chosen]
    return f"compiled, {chosen}" + (f" (also usable here: {', '.join(others)})" if others else "")


def _version(package: str, absent: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return absent
