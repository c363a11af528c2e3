"""Checkpoints on disk: ``state.json`` beside one safetensors file, replaced together or not at all.

The tensors of round t go to ``round-t.safetensors`` first; ``state.json``, which names that file and its SHA-256, then
takes the place of the old one in a single rename.  Whoever is killed in between leaves the previous checkpoint whole.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from desketch.core.files import write_durably
from desketch.core.tree import join_tree, split_tree
from desketch.errors import RunError

__all__ = ["load_checkpoint", "save_checkpoint"]

FORMAT = 1


def save_checkpoint(folder: Path, state: dict[str, Any], *, t: int, identity: str = "") -> None:
    """Write the state of round t; ``identity`` names the run that may go on from it."""
    folder.mkdir(parents=True, exist_ok=True)
    plain, tensors = split_tree(state)
    blob = save(tensors)
    name = f"round-{t:06d}.safetensors"
    write_durably(folder / name, blob)
    meta = {
        "format": FORMAT,
        "round": t,
        "identity": identity,
        "tensors": name,
        "sha256": hashlib.sha256(blob).hexdigest(),
        "state": plain,
    }
    write_durably(folder / "state.json", (json.dumps(meta) + "\n").encode())
    for old in folder.glob("round-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def load_checkpoint(folder: Path, *, identity: str | None = None) -> dict[str, Any]:
    """Read the last complete checkpoint; refuse one of another run, or a damaged one."""
    try:
        meta = json.loads((folder / "state.json").read_text())
        blob = (folder / meta["tensors"]).read_bytes()
    except FileNotFoundError as error:
        raise RunError(
            f"there is no checkpoint in {folder} ({error.filename} is missing); start without --resume"
        ) from None
    except (KeyError, ValueError) as error:
        raise RunError(f"{folder / 'state.json'} is not a checkpoint ({error!r}); start the run again") from None
    if meta.get("format") != FORMAT:
        raise RunError(f"{folder} has checkpoint format {meta.get('format')}, this version reads {FORMAT}")
    if identity is not None and meta["identity"] != identity:
        raise RunError(f"the checkpoint in {folder} belongs to a run with other settings; resume with that run's own")
    if hashlib.sha256(blob).hexdigest() != meta["sha256"]:
        raise RunError(f"{folder / meta['tensors']} does not match its SHA-256 in state.json; the file is damaged")
    state: dict[str, Any] = join_tree(meta["state"], load(blob))
    return state
