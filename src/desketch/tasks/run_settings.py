"""The settings of a run folder, for commands that build its task and model again.

`desketch.federate` writes such a folder too, but its model and data are the caller's: there is nothing to build them
from, and its ``config.yaml`` is for people.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from desketch.errors import ConfigError
from desketch.run.folder import MY_DATA
from desketch.tasks.config import RunConfig

__all__ = ["refuse_federate", "settings_of"]


def settings_of(folder: Path, *, instead: str) -> RunConfig:
    """Read the settings of a run of `desketch train`; ``instead`` is what to do where the folder is of another kind."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise ConfigError(f"{folder} is no run folder (it has no config.yaml); give one that `desketch train` wrote")
    refuse_federate(folder, instead=instead)
    return RunConfig.load(file)


def refuse_federate(folder: Path, *, instead: str) -> None:
    """Raise if the folder is one of `desketch.federate`; a file that cannot be read is for its reader to judge."""
    try:
        values = yaml.safe_load((folder / "config.yaml").read_bytes())
    except (OSError, yaml.YAMLError):
        return
    if isinstance(values, dict) and values.get("task") == MY_DATA:
        raise ConfigError(
            f"{folder} was written by ds.federate in Python, and its model and data are not in it; this command reads "
            f"folders of `desketch train`: {instead}"
        )
