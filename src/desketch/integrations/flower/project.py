"""Write a Flower project that ``flwr run`` accepts: a pyproject with the run's settings, and two three-line apps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from desketch.errors import ConfigError
from desketch.tasks.config import RunConfig

__all__ = ["APP", "write_flower_home", "write_project"]

APP = "desketch_app"

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "Federated training over thin wires: every message is a small sketch of the update."
license = "Apache-2.0"
dependencies = ["flwr==1.41.*", "desketch"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "you"

[tool.flwr.app.components]
serverapp = "{app}.server_app:app"
clientapp = "{app}.client_app:app"

# The settings of `desketch train --help`, and two more: how long a round waits, how many nodes it needs.
[tool.flwr.app.config]
{settings}
"""

_MODULES = {
    "__init__.py": '"""The Flower app of this run."""\n',
    "client_app.py": '''"""The ClientApp: carries frames to this client's resident worker."""

from desketch.integrations.flower.app import client_app as app

__all__ = ["app"]
''',
    "server_app.py": '''"""The ServerApp: the rounds, their checkpoint and their metrics."""

from desketch.integrations.flower.app import server_app as app

__all__ = ["app"]
''',
}


def write_project(folder: Path, config: RunConfig, extra: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write the project of a configured run into ``folder``."""
    name = folder.name.lower().replace("_", "-").strip("-.") or "desketch-run"
    package = folder / APP
    package.mkdir(parents=True, exist_ok=True)
    settings = "\n".join(f"{key} = {json.dumps(value)}" for key, value in _flat({**_given(config), **extra}).items())
    (folder / "pyproject.toml").write_text(_PYPROJECT.format(name=name, app=APP, settings=settings), encoding="utf-8")
    for file, text in _MODULES.items():
        (package / file).write_text(text, encoding="utf-8")


def write_flower_home(home: Path, address: str, root_certificates: Path | None = None) -> None:
    """Write the Flower configuration whose default SuperLink is the one at ``address``."""
    home.mkdir(parents=True, exist_ok=True)
    trust = f"root-certificates = {json.dumps(str(root_certificates))}" if root_certificates else "insecure = true"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "desketch"\n\n[superlink.desketch]\naddress = "{address}"\n{trust}\n', encoding="utf-8"
    )


def _given(config: RunConfig) -> dict[str, Any]:
    """Every setting that Flower's table can hold: no nulls, no lists; the full gradient by its name."""
    settings = {**config.model_dump(mode="json"), "batch_size": config.batch_size or "full"}
    return {name: value for name, value in settings.items() if value not in (None, [], {})}


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            out |= _flat({k: v for k, v in value.items() if v is not None}, f"{prefix}{name}.")
        elif isinstance(value, list):
            raise ConfigError(f"setting {name} is a list, which Flower's configuration cannot hold; leave it out")
        else:
            out[prefix + name] = value
    return out
