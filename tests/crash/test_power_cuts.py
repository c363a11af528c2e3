"""Power cuts at every point of a run: un-flushed writes are lost, torn or reordered, and the run goes on bit for bit.

A checkpoint, once written, is never lost, and nothing that a cut leaves is taken for damage (a warning is an error
here): the checkpoint before the last is there for rotten disks, not to make up for a missing flush.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "session"))
sys.path.insert(0, str(Path(__file__).parent))

import parties
from power import Disk, crashes, left_after, put

from desketch.core.checkpoint import has_checkpoint
from desketch.core.rows import read_rows
from desketch.fed import Attendance, Observer, Observers, Privacy, run
from desketch.privacy.events import Gaussian
from desketch.privacy.run import RunLedger
from desketch.run.folder import RunFolder

ROUNDS = 4
QUICK = ["all", "none", "names", "bytes", 1, 2]
THOROUGH = [*QUICK, *range(3, 40)]


class Spending(RunLedger):
    """One Gaussian a round."""

    def __init__(self):
        claim = {"adjacency": "add-remove", "unit": "client"}
        super().__init__(lambda t: {"everybody": Gaussian(2.0)}, claim=claim, unit="client", delta=1e-5)

    @property
    def charges(self):
        return sum(count for history in self.record.ledger.histories() for _, count in history)


class Promises(Observer):
    """Marks in the log what the folder has promised."""

    def __init__(self, disk, folder):
        self.disk, self.folder = disk, folder

    def on_charge(self, t):
        if self.folder.federation.privacy:
            self.disk.mark(charges=t)

    def on_round(self, record):
        self.disk.mark(saved=self.folder.saved)


KINDS = {
    "plain": {"optimizer": "sgd"},
    "momentum": {"optimizer": "momentum", "attendance": Attendance(fraction=0.5, dropout=0.2, seed=4)},
    "adam": {"optimizer": "adam"},
    "capture": {"capture": (2,)},
    "private": {"private": True},
}


def opened(build, path, *, capture=(), private=False, **options):
    if private:
        options["privacy"] = Privacy(ledger=Spending())
    federation = build(clients=3, **options)
    return RunFolder(path, federation, checkpoint_every=2, capture=capture, config=b"# settings\n")


def finish(folder, *observers):
    run(folder.federation, rounds=ROUNDS, observer=Observers(folder, *observers))
    folder.checkpoint()
    return folder.federation.digest()


def files(folder):
    """What a run leaves, but for seconds and what a cut leaves aside."""
    names = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent.name != "checkpoint"]
    return {path.relative_to(folder): path.read_bytes() for path in names if path.name != "metrics.jsonl"}


def rows(folder):
    found = read_rows(folder / "metrics.jsonl")
    assert not found.damaged
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found.rows]


def survives_every_cut(build, tmp_path, monkeypatch, kind, fates):
    whole = tmp_path / "disk" / "whole"
    (tmp_path / "disk").mkdir()
    disk, folder = Disk(tmp_path / "disk"), opened(build, whole, **KINDS[kind])
    with monkeypatch.context() as patched:
        patched.setattr("desketch.core.files.os", disk)
        folder.start()
        disk.mark(saved=0, started=True)
        digest = finish(folder, Promises(disk, folder))
    written = {whole.parent.joinpath(*path): data for path, data in left_after(disk.log, "none").items() if data}
    assert written == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}  # nothing went elsewhere
    tried = 0
    for end, fate, tree, promised in crashes(disk.log, fates):
        place = tmp_path / f"cut-{end}-{fate}"
        put(tree, place)
        if has_checkpoint(place / "whole" / "checkpoint"):
            assert (place / "whole" / "config.yaml").read_bytes() == b"# settings\n"  # or nobody could go on from it
        again = opened(build, place / "whole", **KINDS[kind])
        again.resume()
        assert again.federation.t >= promised.get("saved", 0)
        if kind == "private":
            assert again.federation.privacy.ledger.charges >= promised.get("charges", 0)
        assert len(again.rows) == again.federation.t
        assert finish(again) == digest
        if kind != "private":
            assert rows(place / "whole") == rows(whole)
            assert files(place / "whole") == files(whole)
        tried += 1
    return tried


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_a_power_cut_at_any_point(build, tmp_path, monkeypatch, kind):
    assert survives_every_cut(build, tmp_path, monkeypatch, kind, QUICK) > 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_a_power_cut_at_any_point_in_many_ways(build, tmp_path, monkeypatch, kind):
    tried = survives_every_cut(build, tmp_path, monkeypatch, kind, THOROUGH)
    print(f"{kind}: {tried} states after a power cut")
    assert tried > 80


def served(folder, disk=None):
    """Rounds of a server with two clients that start anew; its digest."""
    server = parties.server(folder, optimizer="momentum")
    nodes = {c: parties.returning(c) for c in range(2)}
    resumed = server.t
    while server.t < 3:
        parties.play(server, nodes)
        if disk:
            disk.mark(saved=server.t)
    return server.digest(), resumed


def test_a_server_survives_a_power_cut_at_any_point(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with monkeypatch.context() as patched:
        patched.setattr("desketch.core.files.os", disk)
        digest, _ = served(tmp_path / "disk" / "whole", disk)
    tried = 0
    for end, fate, tree, promised in crashes(disk.log, QUICK[:5]):
        put(tree, tmp_path / f"cut-{end}-{fate}")
        again, resumed = served(tmp_path / f"cut-{end}-{fate}" / "whole")
        assert again == digest
        assert resumed >= promised.get("saved", 0)
        tried += 1
    assert tried > 10
