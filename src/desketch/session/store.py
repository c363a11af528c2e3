"""Store: where a client's replica and its ledger outlive its process.

::

    replica.safetensors      agreement, weights, running mean and last answer: the server can send the first two
                             again, a mean begins again without harm, so an unreadable file is none
    ledger.json              what this client has released, with its last answer (`desketch.privacy.client_ledger`)
    ledger.copy.json         the same again; a file that is missing, damaged or older is noticed
    limits.toml              the operator's word: epsilon and delta, releases (optional, written by hand)
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from desketch.core.files import read_sealed, read_sealed_json, sealed_json, write_durably
from desketch.core.locks import sole_writer
from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import DesketchError, InputError, PrivacyError, RunError
from desketch.privacy.client_ledger import ClientLedger, Limits
from desketch.session.protocol import TOKEN_SIZE

__all__ = ["FolderStore", "Kept", "MemoryStore", "SimulatedStores", "Store"]

_ADVICE = (
    "without it this client does not know what it has released, so it releases nothing: put its newest copy back "
    "(ledger.json and ledger.copy.json hold the same)"
)


class Kept(NamedTuple):
    """What outlives a session; ``serial`` is how many private answers its ledger held: a ledger with less is old.

    ``memory`` is the running mean of its updates, where clients send means; ``answer`` is its last reply.
    """

    agreement: bytes
    replica: bytes
    serial: int = 0
    memory: bytes = b""
    answer: bytes = b""


class Store(ABC):
    """Where a session's state outlives it."""

    @abstractmethod
    def load(self) -> Kept | None:
        """What was saved, or None."""

    @abstractmethod
    def save(self, kept: Kept) -> None:
        """Keep the state; replaces what was there at once or not at all."""

    @abstractmethod
    def load_ledger(self) -> ClientLedger:
        """What this client has released, and what its operator allows; damage is an error, never less."""

    @abstractmethod
    def save_ledger(self, ledger: ClientLedger) -> None:
        """Keep the ledger; what it holds may leave when this returns."""

    @contextmanager
    def sole(self) -> Iterator[None]:
        """Keep other processes of the same client out for the block."""
        yield

    @cached_property
    def token(self) -> bytes:
        """What shows that this client is the one that was here before."""
        return os.urandom(TOKEN_SIZE)


class MemoryStore(Store):
    """Lives as long as its process: for tests, and for clients that are simulated in one."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._kept: Kept | None = None
        self._ledger = ClientLedger(limits)

    def load(self) -> Kept | None:
        """What `save` kept."""
        return self._kept

    def save(self, kept: Kept) -> None:
        """Keep it."""
        self._kept = kept

    def load_ledger(self) -> ClientLedger:
        """What `save_ledger` kept."""
        return self._ledger

    def save_ledger(self, ledger: ClientLedger) -> None:
        """Keep it."""
        self._ledger = ledger


class FolderStore(Store):
    """Files in the client's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "replica.safetensors"
        self._ledgers = folder / "ledger.json", folder / "ledger.copy.json"

    def load(self) -> Kept | None:
        """Read the file; one that cannot be read counts as absent, since the server can send everything again."""
        try:
            return Kept(**unpack_tree(read_sealed(self._path, "the server sends everything again")))
        except (OSError, TypeError, DesketchError):
            return None

    def save(self, kept: Kept) -> None:
        """Write a new file and put it in place of the old one."""
        write_durably(self._path, pack_tree(kept._asdict(), sealed=True))

    def load_ledger(self) -> ClientLedger:
        """Read both copies; the one that knows more counts."""
        limits = self._limits()
        if not any(path.exists() for path in self._ledgers):
            return ClientLedger(limits)
        first, copy = self._ledgers
        one = self._read(first, limits)
        if one.serial == 1 and not copy.exists():  # killed between the two files of the first answer, which never left
            return one
        return max(one, self._read(copy, limits), key=lambda ledger: ledger.serial)

    def save_ledger(self, ledger: ClientLedger) -> None:
        """Write both copies, each to the disk."""
        for path in self._ledgers:
            write_durably(path, sealed_json(ledger.to_dict(), indent=2))

    @contextmanager
    def sole(self) -> Iterator[None]:
        """Hold the folder."""
        with sole_writer(self.folder, name="client.lock"):
            yield

    @cached_property
    def token(self) -> bytes:
        """The token in the client's folder, made when first needed."""
        path = self.folder / "token"
        try:
            known = path.read_bytes()
        except OSError:
            known = b""
        if len(known) != TOKEN_SIZE:
            known = os.urandom(TOKEN_SIZE)
            write_durably(path, known)
            path.chmod(0o600)
        return known

    def _read(self, path: Path, limits: Limits | None) -> ClientLedger:
        try:
            return ClientLedger.from_dict(read_sealed_json(path, _ADVICE), limits)
        except RunError as error:
            raise PrivacyError(str(error)) from None

    def _limits(self) -> Limits | None:
        path = self.folder / "limits.toml"
        try:
            return Limits(**tomllib.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); expected epsilon and delta, or releases, as numbers: nothing is "
                "released until it can"
            ) from None


class SimulatedStores:
    """The stores of clients that are simulated on this machine, whose running means are part of the run's checkpoints.

    They live no longer than their simulation, but a run that goes on from round t needs the means as they were then.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="desketch-sim-"))  # one folder a client, named by its number
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def state_dict(self) -> dict[str, Any]:
        """What clients with a running mean keep; private answers are the ledger's, which the run has for them."""
        kept = {path.name: FolderStore(path).load() for path in sorted(self.folder.iterdir())}
        return {name: one._replace(serial=0)._asdict() for name, one in kept.items() if one and one.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put everything back where its client finds it."""
        for name, kept in state.items():
            FolderStore(self.folder / name).save(Kept(**kept))
