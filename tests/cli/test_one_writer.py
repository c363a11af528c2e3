"""Two commands that resume one private run at once: one runs, the other says why not, and no release is uncharged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import desketch as ds
from desketch.api.configured import train_run
from desketch.core.locks import sole_writer
from desketch.errors import RunError
from desketch.privacy.record import read_record
from desketch.tasks import RunConfig

SETTINGS = {"model": "softmax", "clients": 4, "local_steps": 1, "partition": "iid", "rounds": 2, "b": 64}
DP = {"mechanism": "sketch-clip", "noise_multiplier": 4.0, "delta": 1e-3, "clip": 1.0}
RESUME = """
import sys
from pathlib import Path
from desketch.api.configured import train_run
from desketch.errors import RunError
from desketch.fed.rounds import Observer
from desketch.run.folder import RunFolder
from desketch.tasks import RunConfig
folder = Path(sys.argv[1])
config = RunConfig.load(folder / "config.yaml", rounds=6)
released = folder.parent / f"released-{sys.argv[2]}"
def on_frames(self, t, w, frames):  # what leaves, counted by a witness that no lock and no ledger touches
    with released.open("a") as file:
        file.write(f"{t}\\n")
RunFolder.on_frames = on_frames
print("ready", flush=True)
sys.stdin.readline()
try:
    train_run(config, out=folder, resume=True)
    print("ran")
except RunError as error:
    print("refused", error)
"""


def test_two_processes_that_resume_one_run_release_no_more_than_is_charged(tmp_path):
    folder = tmp_path / "run"
    train_run(RunConfig(**SETTINGS, dp=DP), out=folder)
    command = [sys.executable, "-c", RESUME, str(folder)]
    pair = [
        subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in (0, 1)
    ]
    assert [one.stdout.readline() for one in pair] == ["ready\n"] * 2
    for one in pair:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = sorted(one.communicate()[0].split()[0] for one in pair)
    released = sum(len(path.read_text().splitlines()) for path in tmp_path.glob("released-*"))
    (history,) = read_record(folder / "privacy.json").ledger.histories()
    rows = [json.loads(line)["round"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert "ran" in said
    assert 2 + released == history[0][1] == 6  # whoever came later found the run finished, or the folder held
    assert rows == [1, 2, 3, 4, 5, 6]


def test_a_held_folder_is_refused_at_every_entrance(tmp_path):
    folder = tmp_path / "run"
    train_run(RunConfig(**SETTINGS), out=folder)
    model, clients = torch.nn.Linear(2, 1), [ds.Client(torch.zeros(4, 2), torch.zeros(4, 1))]
    wire = ds.Wire(b=2, codec="f32")
    with sole_writer(folder):
        with pytest.raises(RunError, match="another process"):
            train_run(RunConfig(**SETTINGS), out=folder, resume=True)
        with pytest.raises(RunError, match="another process"):
            ds.federate(model, clients, rounds=1, loss=torch.nn.functional.mse_loss, wire=wire, out=folder)
