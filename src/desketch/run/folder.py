"""RunFolder: what a run leaves on disk, and how an interrupted one goes on.

::

    config.yaml              the settings, where a run has them
    metrics.jsonl            one row a round: loss, metrics, bytes_up, bytes_down, participants, refused, seconds, ...
    checkpoint/              see `desketch.core.checkpoint`
    privacy.json             privacy spent, written BEFORE each release: a killed run never forgets what it released
    privacy.copy.json        the same again: an older or damaged one of the two is noticed (`desketch.privacy.book`)
    capture/round-0003/      w.safetensors, meta.json and one client-0007.frame per client: all that an eavesdropper has

Every file is flushed to the disk and carries a checksum of its own (`desketch.core.files`).  A row is there before the
checkpoint that counts it, and the settings before anything that needs them.

A checkpoint is written every n rounds if a run says so.  If it does not, every `EVERY` rounds, until one took longer
than `SLOW` seconds; from then on after the first round that ends `SHARE` times as long after it as it took, so that
they cost about a twentieth of a long run.  Which rounds have one changes nothing: a resumed run computes the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol

import yaml
from torch import Tensor

from desketch.core.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from desketch.core.files import make_folder, remove, sealed_json, write_durably
from desketch.core.rows import append_row, read_rows, write_rows
from desketch.core.tree import pack_tensors
from desketch.errors import RunError
from desketch.fed.channel import Channel
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import Observer, RoundRecord
from desketch.privacy.book import LedgerBook

__all__ = ["MY_DATA", "Every", "RunFolder"]

Every = int | Literal["auto"]
EVERY, SLOW, SHARE = 10, 1.0, 20
_NAMED = 5  # settings that an error names
MY_DATA = "my data"  # the task in a config.yaml of `desketch.federate`


class Resumable(Protocol):
    """What a folder keeps: a federation, or a mesh."""

    @property
    def privacy(self) -> Privacy | None:
        """The run's mechanism and ledger."""

    @property
    def t(self) -> int:
        """Rounds done."""

    @property
    def channel(self) -> Channel:
        """What its frames are made by."""

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
        checkpoint_every: Every = "auto",
        capture: Collection[int] = (),
        capture_meta: Mapping[str, Any] | None = None,
        config: bytes | None = None,
    ) -> None:
        self.path, self.federation, self.identity = path, federation, identity
        self.checkpoint_every = checkpoint_every
        self.capture, self.capture_meta = frozenset(capture), dict(capture_meta or {})
        self.config = config
        self.book = LedgerBook(path, federation.privacy.ledger) if federation.privacy else None
        self.rows: list[dict[str, Any]] = []
        self.saved = 0  # the round of the last checkpoint
        self._ended, self._took = 0.0, 0.0  # when it was written, and how long that took

    def start(self) -> None:
        """Begin a new run; a folder that already holds one is refused."""
        if (self.path / "metrics.jsonl").exists() or has_checkpoint(self.path / "checkpoint"):
            raise RunError(
                f"{self.path} already holds a run; continue it with resume=True (--resume on the command line), or "
                "choose another folder"
            )
        make_folder(self.path)
        self._begin()
        if self.book:
            self.book.start()
        self.checkpoint()  # round 0: even a run killed in round 1 can be resumed
        write_rows(self.path / "metrics.jsonl", [])

    def resume(self) -> None:
        """Go on from the last checkpoint; rows after it are dropped, for they will be computed again, bit for bit.

        A run that was killed before its first checkpoint has nothing to go on from, and starts.
        """
        metrics = self.path / "metrics.jsonl"
        if not has_checkpoint(self.path / "checkpoint") and not metrics.exists():
            return self.start()
        state = load_checkpoint(self.path / "checkpoint", identity=self.identity, changed=self._changed)
        self.federation.load_state_dict(state)
        self.saved = self.federation.t
        if self.book:
            self.book.resume()  # it may know of releases after the checkpoint
        found = read_rows(metrics)
        if found.damaged:
            warnings.warn(found.report(metrics), stacklevel=2)
        self.rows = [row for row in found.rows if row["round"] <= self.federation.t]
        self._begin()
        write_rows(metrics, self.rows)

    def on_charge(self, t: int) -> None:
        """Write the ledger down before round t releases anything."""
        if self.book:
            self.book.write()

    def on_frames(self, t: int, w: Tensor, frames: Mapping[int, bytes]) -> None:
        """Keep what an eavesdropper of round t would have."""
        if t not in self.capture:
            return
        folder = self.path / "capture" / f"round-{t:04d}"
        write_durably(folder / "w.safetensors", pack_tensors({"w": w}))
        write_durably(folder / "meta.json", sealed_json({"round": t, **self.capture_meta}, indent=2))
        for client, frame in frames.items():
            full = self.federation.channel.in_full(t, client, frame)
            write_durably(folder / f"client-{client:04d}.frame", full)

    def on_round(self, record: RoundRecord) -> None:
        """Append the row; checkpoint if one is due."""
        row = record.row()
        self.rows.append(row)
        append_row(self.path / "metrics.jsonl", row)
        if self._due(record.round):
            self.checkpoint()

    def _due(self, t: int) -> bool:
        if self.checkpoint_every != "auto":
            return t % self.checkpoint_every == 0
        if self._took > SLOW:
            return perf_counter() - self._ended >= SHARE * self._took
        return t % EVERY == 0

    def checkpoint(self) -> None:
        """Write the federation's state as it is between two rounds."""
        f, started = self.federation, perf_counter()
        save_checkpoint(self.path / "checkpoint", f.state_dict(), t=f.t, identity=self.identity)
        self.saved, self._ended = f.t, perf_counter()
        self._took = self._ended - started

    def _changed(self) -> str:
        """The settings that are not those of the run in the folder, for people."""
        path = self.path / "config.yaml"
        try:
            was, now = (yaml.safe_load(text) for text in (path.read_bytes(), self.config or b""))
        except (OSError, yaml.YAMLError):  # lost or damaged: it is written again
            return ""
        if not isinstance(was, dict) or not isinstance(now, dict):
            return ""
        differ = [name for name in now if name in was and was[name] != now[name] and name != "rounds"]
        return ", ".join(f"{name} was {was[name]}, now {now[name]}" for name in differ[:_NAMED])

    def _begin(self) -> None:
        for left in self.path.rglob(".*.tmp"):  # by a writer that was killed
            remove(left)
        if self.config is not None:
            write_durably(self.path / "config.yaml", self.config)
