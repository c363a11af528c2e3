"""RunFolder: what a run leaves on disk, and how an interrupted one goes on.

::

    metrics.jsonl            one row a round: loss, metrics, bytes_up, bytes_down, participants, refused, seconds, ...
    checkpoint/              see `desketch.run.checkpoint`
    privacy.json             privacy spent, written BEFORE each release: a killed run never forgets what it released
    privacy.copy.json        the same again: an older or damaged one of the two is noticed (`desketch.privacy.book`)
    capture/round-0003/      w.safetensors, meta.json and one client-0007.frame per client: all that an eavesdropper has
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from safetensors.torch import save
from torch import Tensor

from desketch.core.files import write_durably
from desketch.errors import RunError
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import Observer, RoundRecord
from desketch.privacy.book import LedgerBook
from desketch.run.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["RunFolder"]


class Resumable(Protocol):
    """What a folder keeps: a federation, or a mesh."""

    @property
    def privacy(self) -> Privacy | None:
        """The run's mechanism and ledger."""

    @property
    def t(self) -> int:
        """Rounds done."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on bit for bit."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""


class RunFolder(Observer):
    """Writes rows, checkpoints, the privacy ledger and captures of one federation."""

    def __init__(
        self,
        path: Path,
        federation: Resumable,
        *,
        identity: str = "",
        checkpoint_every: int = 10,
        capture: Collection[int] = (),
        capture_meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.federation, self.identity = path, federation, identity
        self.checkpoint_every = checkpoint_every
        self.capture, self.capture_meta = frozenset(capture), dict(capture_meta or {})
        self.book = LedgerBook(path, federation.privacy.ledger) if federation.privacy else None
        self.rows: list[dict[str, Any]] = []

    def start(self) -> None:
        """Begin a new run; a folder that already holds one is refused."""
        if (self.path / "metrics.jsonl").exists():
            raise RunError(f"{self.path} already holds a run; add --resume to continue it, or choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        if self.book:
            self.book.start()
        self.checkpoint()  # round 0: even a run killed in round 1 can be resumed
        write_durably(self.path / "metrics.jsonl", b"")

    def resume(self) -> None:
        """Go on from the last checkpoint; rows after it are dropped, for they will be computed again, bit for bit."""
        self.federation.load_state_dict(load_checkpoint(self.path / "checkpoint", identity=self.identity))
        if self.book:
            self.book.resume()  # it may know of releases after the checkpoint
        self.rows = [row for row in read_rows(self.path / "metrics.jsonl") if row["round"] <= self.federation.t]
        write_durably(self.path / "metrics.jsonl", "".join(map(_line, self.rows)).encode())

    def on_charge(self, t: int) -> None:
        """Write the ledger down before round t releases anything."""
        if self.book:
            self.book.write()

    def on_frames(self, t: int, w: Tensor, frames: Mapping[int, bytes]) -> None:
        """Keep what an eavesdropper of round t would have."""
        if t not in self.capture:
            return
        folder = self.path / "capture" / f"round-{t:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        write_durably(folder / "w.safetensors", save({"w": w}))
        write_durably(folder / "meta.json", json.dumps({"round": t, **self.capture_meta}, indent=2).encode())
        for client, frame in frames.items():
            write_durably(folder / f"client-{client:04d}.frame", frame)

    def on_round(self, record: RoundRecord) -> None:
        """Append the row; checkpoint every n rounds."""
        row = record.row()
        self.rows.append(row)
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(_line(row))
        if record.round % self.checkpoint_every == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write the federation's state as it is between two rounds."""
        f = self.federation
        save_checkpoint(self.path / "checkpoint", f.state_dict(), t=f.t, identity=self.identity)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file; a last line that was cut off by a kill is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"
