"""Checkpoints on disk: the whole state of round t in one sealed file, ``round-t.safetensors``, and the one before it.

The new file is on the disk under its name before an older one goes, so whoever is killed in between leaves the previous
checkpoint whole.  A newest file that is damaged is not the end either: the one before it takes its place, and the
rounds between are computed again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from desketch.core.files import remove
from desketch.core.tree import read_tree, stream_tree
from desketch.errors import RunError

__all__ = ["has_checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT = 3
_RESTORE = "restore it from a backup, or start the run again in another folder"


def save_checkpoint(folder: Path, state: dict[str, Any], *, t: int, identity: str = "") -> None:
    """Write the state of round t; ``identity`` names the run that may go on from it."""
    tree = {"format": FORMAT, "round": t, "identity": identity, "state": state}
    stream_tree(folder / f"round-{t:06d}.safetensors", tree)
    before = [number for number in _rounds(folder) if number < t]
    for number, path in _rounds(folder).items():
        if number != t and number not in before[:1]:  # one of a later round was damaged, or t would not be the newest
            remove(path)
    for path in folder.glob(".round-*.tmp"):  # of a writer that was killed; a folder has one
        remove(path)


def has_checkpoint(folder: Path) -> bool:
    """Whether there is any file to go on from, damaged or not."""
    return bool(_rounds(folder))


def load_checkpoint(
    folder: Path, *, identity: str | None = None, changed: Callable[[], str] = lambda: ""
) -> dict[str, Any]:
    """Read the newest checkpoint that is whole; refuse one of another run, and say so if a newer one is damaged.

    ``changed`` says in what the other run differs, where that is known.
    """
    found = list(_rounds(folder).values())
    if not found:
        old = " (state.json is an earlier version's, which must finish it)" if (folder / "state.json").exists() else ""
        raise RunError(f"there is no checkpoint in {folder}{old}; {_RESTORE}")
    damage = []
    for path in found:
        try:
            kept = _read(path)
        except RunError as error:
            damage.append(error)
            continue
        if identity is not None and kept["identity"] != identity:
            differs = f" ({said})" if (said := changed()) else ""
            raise RunError(
                f"the checkpoint in {folder} is of another configuration, a run with other settings{differs}; resume "
                "with that run's own, or choose another folder"
            )
        if damage:
            warnings.warn(f"{found[0]} is damaged: going on from the checkpoint of round {kept['round']}", stacklevel=2)
        state: dict[str, Any] = kept["state"]
        return state
    raise damage[0]


def _read(path: Path) -> dict[str, Any]:
    kept = read_tree(path, _RESTORE)
    if kept.get("format") != FORMAT:
        raise RunError(f"{path} has checkpoint format {kept.get('format')}, this version reads {FORMAT}; {_RESTORE}")
    return kept


def _rounds(folder: Path) -> dict[int, Path]:
    """Checkpoints by round, the newest first."""
    found = {int(path.stem.removeprefix("round-")): path for path in folder.glob("round-[0-9]*.safetensors")}
    return dict(sorted(found.items(), reverse=True))
