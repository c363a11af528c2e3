"""A run's state as bytes: a tree of tensors, bytes and JSON values in one safetensors blob.

Tensors and bytes become safetensors entries named by their path; everything else is JSON in the blob's metadata.  The
same blob travels to an absentee as a checkpoint, so its length is what is counted.  A large state goes to the disk
without ever being a blob: `stream_tree` writes the tensors from where they are, and the seal as the last entry.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor

from desketch.core.files import BLANK, SEAL_BYTES, check_streamed, seal, stream_sealed
from desketch.errors import RunError

__all__ = [
    "join_tree",
    "pack_tensors",
    "pack_tree",
    "read_tree",
    "split_tree",
    "stream_tree",
    "tree_size",
    "unpack_tree",
]

_SEP = "/"
_SEAL = "$sha256"
_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


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
    if sealed:
        return seal(save(tensors, metadata={"state": json.dumps(plain), "sha256": BLANK}))
    header, order = _layout(plain, tensors)
    return b"".join([header, *(_bytes(tensors[name]) for name in order)])


def tree_size(tree: dict[str, Any]) -> int:
    """The length of `pack_tree` without packing anything."""
    plain, tensors = split_tree(tree)
    return len(_layout(plain, tensors)[0]) + sum(value.nbytes for value in tensors.values())


def stream_tree(path: Path, tree: dict[str, Any]) -> None:
    """Write the tree to a file, sealed, from where its tensors are; still a safetensors file for any reader."""
    plain, tensors = split_tree(tree)
    header, order = _layout(plain, tensors, sealed=True)
    stream_sealed(path, itertools.chain([header], (_bytes(tensors[name]) for name in order)))


def read_tree(path: Path, remedy: str) -> dict[str, Any]:
    """The tree that `stream_tree` wrote; its tensors are mapped from the file, and copied only where they change."""
    check_streamed(path, remedy)
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return join_tree(json.loads(header["__metadata__"]["state"]), load_file(path))
    except (SafetensorError, KeyError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise RunError(f"{path} cannot be read as a checkpoint ({error}); {remedy}") from error


def _layout(plain: Any, tensors: Mapping[str, Tensor], *, sealed: bool = False) -> tuple[bytes, list[str]]:
    """The header of a safetensors file, and the order of its tensors: the wide kinds first, so that all are aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    entries: dict[str, Any] = {"__metadata__": {"state": json.dumps(plain)}}
    end = 0
    for name in order:
        value = tensors[name]
        start, end = end, end + value.nbytes
        entries[name] = {"dtype": _DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
    if sealed:
        entries[_SEAL] = {"dtype": "U8", "shape": [SEAL_BYTES], "data_offsets": [end, end + SEAL_BYTES]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header, order


def _bytes(value: Tensor) -> memoryview:
    """The bytes of a tensor where they are."""
    return memoryview(value.cpu().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


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
