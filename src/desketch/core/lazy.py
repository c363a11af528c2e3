"""`lazy`: a module whose code runs when something in it is first used: few runs need it, and all would wait for it."""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import Any

__all__ = ["lazy"]


def lazy(name: str) -> Any:
    """The top-level module of that name; an `ImportError` comes now if there is none, its code runs at first use."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
