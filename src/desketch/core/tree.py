"""A run's state as bytes: a tree of tensors, bytes and JSON values in one safetensors blob.

Tensors and bytes become safetensors entries named by their path; everything else is JSON in the blob's metadata.  The
same blob travels to an absentee as a checkpoint and lies on disk, so its length is what is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from desketch.core.files import BLANK, seal
from desketch.errors import RunError

__all__ = ["join_tree", "pack_tensors", "pack_tree", "split_tree", "unpack_tree"]

_SEP = "/"


def split_tree(tree: Any, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Split a tree into its JSON part, where each tensor is ``{"$tensor": path}``, and its tensors by path."""
    if isinstance(tree, Tensor):
        return {"$tensor": path}, {path: tree.detach().contiguous()}
    if isinstance(tree, bytes):
        return {"$bytes": path}, {path: torch.frombuffer(bytearray(tree), dtype=torch.uint8) if tree else _EMPTY}
    if not isinstance(tree, dict | list | tuple):
        return tree, {}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    parts = {str(name): split_tree(value, f"{path}{_SEP}{name}" if path else str(name)) for name, value in items}
    tensors = {name: value for _, found in parts.values() for name, value in found.items()}
    plain = {name: value for name, (value, _) in parts.items()}
    return (plain if isinstance(tree, dict) else list(plain.values())), tensors


def join_tree(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """Undo `split_tree`."""
    if isinstance(plain, list):
        return [join_tree(value, tensors) for value in plain]
    if not isinstance(plain, dict):
        return plain
    if set(plain) == {"$tensor"}:
        return tensors[plain["$tensor"]]
    if set(plain) == {"$bytes"}:
        return tensors[plain["$bytes"]].numpy().tobytes()
    return {name: join_tree(value, tensors) for name, value in plain.items()}


def pack_tree(tree: dict[str, Any], *, sealed: bool = False) -> bytes:
    """The tree as one safetensors blob; ``sealed`` is for a disk, a message has its own checksum."""
    plain, tensors = split_tree(tree)
    metadata = {"state": json.dumps(plain)}
    return seal(save(tensors, metadata={**metadata, "sha256": BLANK})) if sealed else save(tensors, metadata=metadata)


def pack_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors as a sealed safetensors file, for any reader of such files."""
    return seal(save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata={"sha256": BLANK}))


def unpack_tree(blob: bytes) -> dict[str, Any]:
    """The tree of a blob made by `pack_tree`."""
    try:
        length = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + length])
        return join_tree(json.loads(header["__metadata__"]["state"]), load(blob))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise RunError(
            f"a checkpoint of {len(blob)} bytes cannot be read ({error}); fetch or write it again"
        ) from error


_EMPTY = torch.zeros(0, dtype=torch.uint8)
