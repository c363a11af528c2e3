"""Runs on disk: resumed runs equal uninterrupted ones, damaged or foreign checkpoints are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from desketch.core.checkpoint import load_checkpoint, save_checkpoint
from desketch.core.rows import read_rows
from desketch.errors import RunError
from desketch.fed import (
    OPTIMIZERS,
    Attendance,
    Federation,
    Observer,
    Observers,
    Privacy,
    RoundRecord,
    make_average,
    run,
)
from desketch.privacy.events import Gaussian
from desketch.privacy.record import read_record
from desketch.privacy.run import RunLedger
from desketch.run.folder import RunFolder
from desketch.wire import decode_batch

Build = Callable[..., Federation]


def _rows(folder: Path) -> list[dict[str, Any]]:
    found = read_rows(folder / "metrics.jsonl")
    assert not found.damaged
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found.rows]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_is_the_uninterrupted_one(build: Build, tmp_path: Path, optimizer: str) -> None:
    def make() -> Federation:
        attendance = Attendance(fraction=0.5, dropout=0.1, seed=4)
        return build(optimizer=optimizer, attendance=attendance, average=make_average(3, d=1), codec="sign1")

    whole = RunFolder(tmp_path / "whole", make(), checkpoint_every=4)
    whole.start()
    run(whole.federation, rounds=12, observer=whole)
    cut = RunFolder(tmp_path / "cut", make(), checkpoint_every=4)
    cut.start()
    run(cut.federation, rounds=7, observer=cut)  # rounds 5..7 are lost with the process
    again = RunFolder(tmp_path / "cut", make(), checkpoint_every=4)
    again.resume()
    assert again.federation.t == 4
    run(again.federation, rounds=12, observer=again)
    assert _rows(tmp_path / "cut") == _rows(tmp_path / "whole")
    assert [row["round"] for row in again.rows] == list(range(1, 13))
    assert torch.equal(again.federation.model_vector, whole.federation.model_vector)


def test_a_torn_last_row_is_dropped(build: Build, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, build(), checkpoint_every=1)
    folder.start()
    run(folder.federation, rounds=3, observer=folder)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "lo')
    again = RunFolder(tmp_path, build())
    again.resume()
    assert [row["round"] for row in _rows(tmp_path)] == [1, 2, 3]


def test_a_bad_row_costs_itself_and_is_named(build: Build, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, build(), checkpoint_every=1)
    folder.start()
    run(folder.federation, rounds=5, observer=folder)
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"bytes_up": ', b'"bytes_up": 1')  # another number, still JSON
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines))
    again = RunFolder(tmp_path, build())
    with pytest.warns(UserWarning, match="line 2 cannot be read"):
        again.resume()
    assert [row["round"] for row in _rows(tmp_path)] == [1, 3, 4, 5]


def test_a_run_whose_checkpoints_are_gone_is_not_started_again(build: Build, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, build())
    folder.start()
    for path in (tmp_path / "checkpoint").iterdir():
        path.unlink()
    with pytest.raises(RunError, match="no checkpoint"):
        RunFolder(tmp_path, build()).resume()


def test_what_a_killed_writer_left_is_swept(build: Build, tmp_path: Path) -> None:
    left = [tmp_path / ".config.yaml.1.tmp", tmp_path / "capture" / "round-0001" / ".meta.json.1.tmp"]
    for begin in (RunFolder.start, RunFolder.resume):
        for path in left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        begin(RunFolder(tmp_path, build()))
        assert not any(path.exists() for path in left)


def test_a_stop_ends_the_run_after_the_round(build: Build, tmp_path: Path) -> None:
    class Stop(Observer):
        def on_round(self, record: Any) -> None:
            self.stop = record.round == 2

    f = build()
    run(f, rounds=9, observer=Observers(Observer(), Stop()))
    assert f.t == 2


def test_captures_hold_what_an_eavesdropper_has(build: Build, tmp_path: Path) -> None:
    f = build(clients=3)
    folder = RunFolder(tmp_path, f, capture=[2], capture_meta={"task": "blobs"})
    folder.start()
    run(f, rounds=3, observer=folder)
    captured = tmp_path / "capture"
    assert [path.name for path in captured.iterdir()] == ["round-0002"]
    frames = sorted((captured / "round-0002").glob("client-*.frame"))
    assert [path.name for path in frames] == [f"client-{c:04d}.frame" for c in range(3)]
    meta = json.loads((captured / "round-0002" / "meta.json").read_text())
    assert {name: meta[name] for name in ("round", "task")} == {"round": 2, "task": "blobs"}
    batch = decode_batch({c: path.read_bytes() for c, path in enumerate(frames)}, f.channel.header(2, "update"))
    assert batch.senders == (0, 1, 2)


def test_a_second_run_never_overwrites_the_first(build: Build, tmp_path: Path) -> None:
    RunFolder(tmp_path, build()).start()
    with pytest.raises(RunError, match="already holds a run"):
        RunFolder(tmp_path, build()).start()
    (tmp_path / "metrics.jsonl").unlink()  # the weights are still there
    with pytest.raises(RunError, match="already holds a run"):
        RunFolder(tmp_path, build()).start()


def test_foreign_damaged_and_missing_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint"):
        load_checkpoint(tmp_path)
    for t in (1, 2, 3):
        save_checkpoint(tmp_path, {"w": torch.ones(3), "x": [t / 2]}, t=t, identity="a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000002.safetensors", "round-000003.safetensors"]
    assert load_checkpoint(tmp_path, identity="a")["x"] == [1.5]
    with pytest.raises(RunError, match="other settings"):
        load_checkpoint(tmp_path, identity="b")
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(RunError, match=r"round-000003\.safetensors is damaged"):
        load_checkpoint(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(RunError, match="earlier version"):
        load_checkpoint(tmp_path)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    for t in (4, 8):
        save_checkpoint(tmp_path, {"x": t}, t=t)
    newest = tmp_path / "round-000008.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.warns(UserWarning, match=r"round-000008\.safetensors is damaged.* round 4"):
        assert load_checkpoint(tmp_path)["x"] == 4
    save_checkpoint(tmp_path, {"x": 5}, t=5)  # the damaged one must not take the place of a good one
    assert load_checkpoint(tmp_path)["x"] == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000004.safetensors", "round-000005.safetensors"]


def test_a_kill_in_mid_checkpoint_leaves_the_last_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, {"w": torch.ones(3)}, t=1)

    def killed(path: Path, tree: object) -> None:
        path.with_name(f".{path.name}.1.tmp").write_bytes(b"\0" * 9)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("desketch.core.checkpoint.stream_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, {"w": torch.zeros(3)}, t=2)
    assert torch.equal(load_checkpoint(tmp_path)["w"], torch.ones(3))
    save_checkpoint(tmp_path, {"w": torch.zeros(3)}, t=2)
    assert not list(tmp_path.glob(".*"))


def test_a_run_killed_in_its_first_round_can_be_resumed(build: Build, tmp_path: Path) -> None:
    RunFolder(tmp_path, build()).start()
    again = RunFolder(tmp_path, build())
    again.resume()
    assert (again.federation.t, again.rows) == (0, [])


class Spending(RunLedger):
    """A client-level ledger of its own kind: one Gaussian a round, no budget."""

    def __init__(self) -> None:
        claim = {"adjacency": "add-remove", "unit": "client"}
        super().__init__(lambda t: {"everybody": Gaussian(2.0)}, claim=claim, unit="client", delta=1e-5)

    @property
    def rounds(self) -> int:
        return sum(count for history in self.record.ledger.histories() for _, count in history)


def test_privacy_is_written_down_before_a_release_and_survives_its_kill(build: Build, tmp_path: Path) -> None:
    """Killed in round 3, after its charge, with the last checkpoint at round 2: three rounds stay spent."""

    class Killed(Observer):
        def on_frames(self, t: int, w: Any, frames: Any) -> None:
            charged = read_record(tmp_path / "privacy.json").ledger.histories()
            assert sum(count for history in charged for _, count in history) == t
            if t == 3:
                raise KeyboardInterrupt

    def make() -> Federation:
        return build(privacy=Privacy(ledger=Spending()))

    folder = RunFolder(tmp_path, make(), checkpoint_every=2)
    folder.start()
    with pytest.raises(KeyboardInterrupt):
        run(folder.federation, rounds=5, observer=Observers(folder, Killed()))
    again = RunFolder(tmp_path, make(), checkpoint_every=2)
    again.resume()
    assert again.federation.t == 2
    assert again.federation.privacy.ledger.rounds == 3
    run(again.federation, rounds=5, observer=again)
    assert again.federation.privacy.ledger.rounds == 6


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [(1.0, [0, 10, 20, 30]), (1.25, [0, 25])],  # a round takes a second, and 20 x 1.25 of them are 25
)
def test_slow_checkpoints_are_taken_by_time(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: list[int]
) -> None:
    clock, written = [0.0], []

    def save(folder: Path, state: Any, *, t: int, identity: str) -> None:
        clock[0] += seconds
        written.append(t)

    monkeypatch.setattr("desketch.run.folder.perf_counter", lambda: clock[0])
    monkeypatch.setattr("desketch.run.folder.save_checkpoint", save)

    class Second(Observer):
        def on_round(self, record: RoundRecord) -> None:
            clock[0] += 1.0

    f = build()
    folder = RunFolder(tmp_path, f)
    folder.start()
    run(f, rounds=31, observer=Observers(Second(), folder))
    assert written == rounds
