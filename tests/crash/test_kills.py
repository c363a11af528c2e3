"""SIGKILL in the middle of file operations, through the real command line: every kind of run goes on bit for bit.

A private run draws fresh noise when it goes on, so its weights differ; it has charged at least what it released.
"""

from __future__ import annotations

import random
import signal

import pytest

from desketch.core.rows import read_rows
from desketch.privacy.record import read_record

SMALL = (
    "--model softmax --clients 4 --partition iid --local-steps 1 --batch-size 4 --b 32 --rounds 4 --checkpoint-every 2"
)
PRIVATE = f"{SMALL} --delta 1e-5 --clip 1 --noise-multiplier 2"
KINDS = {
    "plain": f"{SMALL} --server-optimizer sgd",
    "momentum": f"{SMALL} --server-optimizer momentum",
    "adam": f"{SMALL} --server-optimizer adam",
    "partial": f"{SMALL} --fraction 0.5 --dropout 0.2 --straggler 0.2",
    "capture": f"{SMALL} --capture 1,3",
    "tree": f"{SMALL} --topology ring --protocol tree",
    "gossip": f"{SMALL} --topology ring --protocol gossip --codec f32",
    "flower": f"{SMALL} --engine flower-sim",
    "per-step": f"{PRIVATE} --dp per-step",
    "sketch-clip client": f"{PRIVATE} --dp sketch-clip",
    "sketch-clip example": f"{PRIVATE} --dp sketch-clip --dp-unit example",
}
QUICK = {"momentum": 4, "partial": 2, "capture": 2, "gossip": 2, "per-step": 2}
MANY = 20  # of every kind, 11 kinds


@pytest.fixture(scope="module")
def whole(desketch, tmp_path_factory):
    """Uninterrupted runs by kind: the folder, and how many file operations it took."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("whole") / "run"
            done = desketch("train", *KINDS[kind].split(), "-q", "--out", folder, **carrier(kind, folder.parent))
            assert done["status"] == 0, done["err"]
            made[kind] = folder, done["operations"]
        return made[kind]

    return get


def carrier(kind, folder):
    return {"states": str(folder / "states")} if kind == "flower" else {}


def rows(folder, kind):
    """The table without seconds; Flower's clients are told the agreement again, and it counts what is really sent."""
    found = read_rows(folder / "metrics.jsonl")
    assert not found.damaged
    own = {"seconds", "bytes_up", "bytes_down"} if kind == "flower" else {"seconds"}
    return [{name: value for name, value in row.items() if name not in own} for row in found.rows]


def charges(folder):
    """The charges of the party that was charged most."""
    histories = read_record(folder / "privacy.json").ledger.histories()
    return max(sum(count for _, count in history) for history in histories)


def kept(folder):
    """What must be equal after all: the model and the captures, byte for byte."""
    paths = [
        path for path in folder.rglob("*") if path.name == "model.safetensors" or path.parent.parent.name == "capture"
    ]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def finished(desketch, kind, out, kills, log):
    """Train into ``out``, killed at each of these operations in turn; how many kills struck."""
    struck, resume = 0, []
    for kill in [*kills, None]:
        faults = {"kill": kill, "log": str(log), **carrier(kind, out.parent)}
        done = desketch("train", *KINDS[kind].split(), *resume, "-q", "--out", out, **faults)
        if done["status"] == 0:
            return struck
        assert done["status"] == -signal.SIGKILL, done["err"]
        struck, resume = struck + 1, ["--resume"] if (out / "config.yaml").exists() else []
    raise AssertionError("the last one has no kill")


def survives(desketch, whole, tmp_path, kind, plans):
    """Kill runs of a kind as planned, shares of a run's file operations; how many kills struck."""
    reference, operations = whole(kind)
    struck = 0
    for number, shares in enumerate(plans):
        out, log = tmp_path / f"run-{number}", tmp_path / f"log-{number}"
        kills = [1 + int(share * operations) for share in shares]
        struck += finished(desketch, kind, out, kills, log)
        if (out / "privacy.json").exists():
            released = log.read_text().count("\n")
            assert charges(out) >= released >= 4
        else:
            assert rows(out, kind) == rows(reference, kind)
            assert kept(out) == kept(reference)
        assert not list(out.rglob(".*.tmp"))
    return struck


@pytest.mark.parametrize("kind", QUICK)
def test_killed_runs_go_on_bit_for_bit(desketch, whole, tmp_path, kind):
    """A dozen kills; each run is killed twice, the second time after it was resumed."""
    rng = random.Random(kind)
    plans = [(rng.random(), rng.random() / 2) for _ in range(QUICK[kind] // 2)]
    assert survives(desketch, whole, tmp_path, kind, plans) == QUICK[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_runs_killed_again_and_again_go_on_bit_for_bit(desketch, whole, tmp_path, kind):
    rng = random.Random(f"slow {kind}")
    struck = 0
    while struck < MANY:
        plan = (rng.random(), rng.random() / 2, rng.random() / 3)
        place = tmp_path / str(struck)
        place.mkdir()
        struck += survives(desketch, whole, place, kind, [plan])
    print(f"{kind}: {struck} kills")


@pytest.mark.slow
def test_killed_runs_over_ray_go_on_bit_for_bit(desketch, tmp_path):
    """The same with Flower's own simulation, whose processes end with the one that was killed."""
    argv = ["train", *KINDS["flower"].split(), "-q", "--out"]
    done = desketch(*argv, tmp_path / "whole")
    assert done["status"] == 0, done["err"]
    for share in (0.4, 0.8):
        out = tmp_path / str(share)
        assert desketch(*argv, out, kill=int(share * done["operations"]))["status"] == -signal.SIGKILL
        again = desketch(*argv, out, "--resume")
        assert again["status"] == 0, again["err"]
        assert rows(out, "flower") == rows(tmp_path / "whole", "flower")
        assert kept(out) == kept(tmp_path / "whole")


def test_the_settings_are_there_before_anything_needs_them(desketch, tmp_path):
    """Killed at each of the first operations, while the folder is made: the same command, or --resume, goes on."""
    for kill in (2, 9, 16, 19):
        assert finished(desketch, "plain", tmp_path / str(kill), [kill], tmp_path / "log") == 1
