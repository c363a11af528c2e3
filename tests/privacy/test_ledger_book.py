"""A ledger on disk never says less than was released, whatever crashes, is restored from an older day or damaged."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from desketch.core import files
from desketch.errors import DesketchError, PrivacyError, RunError
from desketch.fed.mechanism import Privacy
from desketch.fed.rounds import RoundRecord
from desketch.privacy.book import COPY, RECORD, LedgerBook
from desketch.privacy.events import EVERYBODY, Gaussian, Ledger
from desketch.privacy.record import read_record
from desketch.privacy.run import RunLedger
from desketch.run.folder import RunFolder

BOTH = (RECORD, COPY)
EVENTS = (Gaussian(20.0), Gaussian(30.0), Gaussian(40.0))


def releases(t):
    """Party 0 in every round, party 1 in every second one, party 2 with an event that changes."""
    parties = {"0": EVENTS[0], "2": EVENTS[t % 3]}
    return parties if t % 2 else parties | {"1": EVENTS[1]}


def new_ledger():
    return RunLedger(releases, claim={"adjacency": "add-remove"}, unit="example", delta=1e-5)


def counts(ledger):
    spent = ledger.record.ledger.spent
    return Counter({(party, event): n for party, events in spent.items() for event, n in events.items()})


class PowerCut(BaseException):
    """The machine is off."""


class Disk:
    """Stands in for ``os`` in `desketch.core.files`: counts the steps of durable writes and cuts the power at one.

    A name that the folder's flush has not reached yet may or may not survive: ``lose`` says which.
    """

    def __init__(self):
        self.steps, self.lose, self._pending = None, False, []

    def __getattr__(self, name):
        return getattr(os, name)

    def _step(self):
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                for target, old in reversed(self._pending if self.lose else []):
                    target.unlink() if old is None else target.write_bytes(old)
                self._pending.clear()
                raise PowerCut

    def replace(self, source, target):
        self._step()
        target = Path(target)
        self._pending.append((target, target.read_bytes() if target.exists() else None))
        os.replace(source, target)

    def fsync(self, descriptor):
        self._step()
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir():
            self._pending.clear()


class FakeRun:
    """What a run folder needs of a federation: a round counter and a ledger."""

    def __init__(self):
        self.privacy, self.t = Privacy(ledger=new_ledger()), 0

    def state_dict(self):
        return {"t": self.t, "ledger": self.privacy.ledger.state_dict()}

    def load_state_dict(self, state):
        self.t = state["t"]
        self.privacy.ledger.load_state_dict(state["ledger"])


def row(t):
    return RoundRecord(t, {}, 0, 0, 0, 0, {}, 0, 0, 0.0, "", 0.0)


class LedgerOnDisk(RuleBasedStateMachine):
    """A run that is killed, restored in part, damaged and resumed, beside the truth: what really left it."""

    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.disk, self.released, self.charged = Disk(), Counter(), Counter()
        self.old: dict[str, list[dict[str, bytes]]] = {name: [] for name in (*BOTH, "checkpoint")}
        self.folder, self.fault, self.sabotaged = None, None, ""
        files.os = self.disk

    def teardown(self):
        files.os = os
        shutil.rmtree(self.path)

    @initialize()
    def start(self):
        self.folder = RunFolder(self.path, FakeRun(), checkpoint_every=2)
        self.folder.start()
        self._remember()

    @rule(steps=st.none() | st.integers(0, 14), lose=st.booleans(), cut=st.sampled_from(["", "before", "after"]))
    @precondition(lambda self: self.folder)
    def play_a_round(self, steps, lose, cut):
        run, folder, t = self.folder.federation, self.folder, self.folder.federation.t + 1
        self.disk.steps, self.disk.lose = steps, lose
        try:
            run.privacy.ledger.charge(t)
            self.charged.update(releases(t).items())
            folder.on_charge(t)
            if cut == "before":
                raise PowerCut
            self.released.update(releases(t).items())
            if cut == "after":
                raise PowerCut
            run.t = t
            folder.on_round(row(t))
        except PowerCut:
            self.folder = None
        self.disk.steps = None
        self._remember()

    @rule()
    @precondition(lambda self: self.folder)
    def kill(self):
        self.folder = None

    @rule(which=st.sampled_from([*BOTH, "checkpoint"]), age=st.integers(0, 50))
    @precondition(lambda self: self.folder is None and self.fault is None)
    def an_older_one_is_put_back(self, which, age):
        versions = self.old[which]
        self.fault = "older"
        for name, data in versions[max(0, len(versions) - 1 - age)].items():
            (self.path / name).write_bytes(data)

    @rule(which=st.sampled_from(BOTH), kind=st.sampled_from(["cut", "flip", "delete"]), at=st.integers(0, 10**6))
    @precondition(lambda self: self.folder is None and self.fault is None)
    def damage(self, which, kind, at):
        path = self.path / which
        data = bytearray(path.read_bytes())
        self.fault, self.sabotaged = "damage", which
        if kind == "delete":
            path.unlink()
            return
        if kind == "cut":
            del data[at % len(data) :]
        else:
            data[at // 8 % len(data)] ^= 1 << at % 8
        path.write_bytes(data)

    @rule()
    @precondition(lambda self: self.folder is None)
    def resume(self):
        folder, complaint = self._resumed()
        if folder is None:
            assert self.fault == "damage", complaint  # an older file is no error: the other copy knows more
            assert self.sabotaged in complaint
            other = next(name for name in BOTH if name != self.sabotaged)
            shutil.copy(self.path / other, self.path / self.sabotaged)  # as the message advises
            folder, complaint = self._resumed()
            assert folder is not None, complaint
        known = counts(folder.federation.privacy.ledger)
        assert self.released <= known <= self.charged
        folder.book.write()  # what a resumed run does before its next release
        self.folder, self.fault = folder, None
        self._remember()

    def _resumed(self):
        folder = RunFolder(self.path, FakeRun(), checkpoint_every=2)
        try:
            folder.resume()
        except DesketchError as error:
            return None, str(error)
        return folder, ""

    def _remember(self):
        for name in BOTH:
            self.old[name].append({name: (self.path / name).read_bytes()})
        kept = [path for path in (self.path / "checkpoint").iterdir() if not path.name.startswith(".")]
        self.old["checkpoint"].append({f"checkpoint/{path.name}": path.read_bytes() for path in kept})


LedgerOnDisk.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True)
TestLedgerOnDisk = LedgerOnDisk.TestCase


def charged_folder(path, rounds=3):
    ledger = new_ledger()
    book = LedgerBook(path, ledger)
    book.start()
    for t in range(1, rounds + 1):
        ledger.charge(t)
        book.write()
    return ledger


def test_no_bit_and_no_byte_of_a_ledger_can_go_without_notice(tmp_path):
    truth = charged_folder(tmp_path, rounds=1).record
    path = tmp_path / RECORD
    whole = path.read_bytes()
    changed = [whole[:i] for i in range(0, len(whole) - 1, 7)]  # the last byte is the end of the line
    changed += [
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :] for i in range(0, len(whole), 3) for bit in (0, 4)
    ]
    for data in changed:
        path.write_bytes(data)
        with suppress(PrivacyError):
            assert read_record(path) == truth  # a space that became another blank changes nothing


def test_a_ledger_without_its_seal_is_not_a_ledger(tmp_path):
    charged_folder(tmp_path)
    path = tmp_path / RECORD
    path.write_text(path.read_text().replace('"sha256"', '"md5"'))
    with pytest.raises(PrivacyError, match="SHA-256"):
        read_record(path)


def test_a_ledger_is_never_begun_again(tmp_path):
    charged_folder(tmp_path)
    with pytest.raises(RunError, match="choose another folder"):
        LedgerBook(tmp_path, new_ledger()).start()
    (tmp_path / RECORD).unlink()  # one of the two is enough to know
    with pytest.raises(RunError, match="choose another folder"):
        LedgerBook(tmp_path, new_ledger()).start()
    assert read_record(tmp_path / COPY).ledger.spent


def test_a_run_killed_before_its_first_charge_can_be_started_again(tmp_path):
    charged_folder(tmp_path, rounds=0)
    LedgerBook(tmp_path, new_ledger()).start()


def test_the_join_of_ledgers_is_their_maximum_per_party_and_event():
    one = Ledger("example").plus(EVENTS[0], parties=["a", "b"], count=3).plus(EVENTS[1], parties=["a"])
    two = Ledger("example", not_private="why").plus(EVENTS[0], parties=["a"], count=5).plus(EVENTS[2], parties=["c"])
    joined = one.joined(two)
    assert {party: dict(counts) for party, counts in joined.spent.items()} == {
        "a": {EVENTS[0]: 5, EVENTS[1]: 1},
        "b": {EVENTS[0]: 3},
        "c": {EVENTS[2]: 1},
    }
    assert joined == two.joined(one)
    assert joined.joined(one) == joined
    assert joined.not_private
    with pytest.raises(PrivacyError, match="mechanism the run was started with"):
        one.joined(Ledger("client").plus(EVENTS[0], parties=[EVERYBODY]))
