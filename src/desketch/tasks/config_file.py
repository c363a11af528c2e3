"""A file of settings, YAML or TOML, as names and values; nothing is judged here but that it is one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from desketch.errors import ConfigError

__all__ = ["read_settings"]


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a file; a name that stands twice is refused."""
    readers: dict[str, Callable[[str], Any]] = {".yaml": _read_yaml, ".yml": _read_yaml, ".toml": tomllib.loads}
    if path.suffix not in readers:
        raise ConfigError(f"a configuration is a .yaml, .yml or .toml file, got {path}")
    try:
        values = readers[path.suffix](path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read configuration {path}: {error}") from None
    if values is not None and (not isinstance(values, dict) or not all(isinstance(name, str) for name in values)):
        raise ConfigError(f"{path} must hold settings as name: value, got {type(values).__name__}")
    return values or {}


class _NoRepeats(yaml.SafeLoader):
    """YAML in which a name may stand once: PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"{twice!r} is set twice, near line {node.start_mark.line + 1}; keep one of them")
        return super().construct_mapping(node, deep)


def _read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_NoRepeats)  # a SafeLoader
