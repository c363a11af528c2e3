"""``desketch train`` in real processes: summary, folder, refusal, and a SIGKILL that costs nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from desketch.cli.app import cli, main
from desketch.core.rows import read_rows

SMALL = ["--model", "mlp:16", "--clients", "4", "--local-steps", "3", "--batch-size", "16"]
KEYS = {
    "test_accuracy",
    "rounds",
    "bytes_up_per_client",
    "bytes_down_per_client",
    "fedavg_bytes_per_client",
    "replica_digest",
    "seconds",
}


def _start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "desketch", "train", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _train(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    process = _start(*arguments, cwd=cwd)
    out, err = process.communicate()
    return process.returncode, out, err


def _rows(folder: Path) -> list[dict[str, object]]:
    rows = read_rows(folder / "metrics.jsonl").rows
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def _wait_for_rounds(folder: Path, n: int, process: subprocess.Popen[str]) -> None:
    """Wait until the run has written n rows."""
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= n):
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (["--compression", "90"], True),
        (["--compression", "90", "--codec", "int8"], False),
        (["--compression", "90", "--codec", "int8", "--codec-down", "sign1"], True),
        (["--compression", "60"], False),
    ],
)
def test_a_one_bit_sketch_that_is_too_small_is_warned_about_before_training(
    flags: list[str], warned: bool, tmp_path: Path
) -> None:
    """mlp:16 on digits has d = 1210: b = 13 and b = 20."""
    arguments = ["train", *SMALL, *flags, "--rounds", "1", "--out", str(tmp_path / "run"), "--json", "-"]
    result = CliRunner().invoke(cli, arguments)
    assert json.loads(result.stdout)["b"] == (13 if "90" in flags else 20)
    assert ("the one-bit code is biased, here by up to 25%" in result.stderr) is warned


def test_json_is_one_object_and_the_folder_is_complete(tmp_path: Path) -> None:
    arguments = "--task digits --fraction 1.0 --partition dirichlet:0.3 --family srht --compression 10 --codec int4"
    arguments += " --rounds 4 --seed 3 --out run --capture 2 --json -"
    code, out, err = _train(*SMALL, *arguments.split(), cwd=tmp_path)
    assert code == 0, err
    summary = json.loads(out)
    assert set(summary) >= KEYS
    assert summary["rounds"] == 4
    assert summary["fedavg_bytes_per_client"] == 4 * 4 * 2 * summary["d"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "checkpoint",
        "model.safetensors",
        "capture",
        "report.html",
    }
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    wanted = {"round", "loss", "accuracy", "bytes_up", "bytes_down", "participants", "refused", "seconds"}
    assert all(set(row) >= wanted for row in rows)
    assert sum(row["bytes_up"] for row in rows) == 4 * summary["bytes_up_per_client"]
    code, _, err = _train(*SMALL, "--out", "run", cwd=tmp_path)
    assert code == 2
    assert "--resume" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "wrong.yaml"], "rounds"),
        (["--resume"], "--out"),
        (["--resume", "--out", "nowhere"], "no run to resume"),
        (["--dp", "sketch-clip", "--epsilon", "4"], "delta"),
        (["--capture", "first"], "--capture"),
        (["--eta-global", "fast"], "eta_global"),
    ],
)
def test_wrong_settings_are_one_clear_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    (tmp_path / "wrong.yaml").write_text("roundz: 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["desketch", "train", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err


@pytest.mark.parametrize("sent", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, sent: signal.Signals) -> None:
    arguments = [*SMALL, "--rounds", "40", "--checkpoint-every", "3", "--fraction", "0.5", "--seed", "5"]
    code, out, err = _train(*arguments, "--out", "whole", "--json", "-", cwd=tmp_path)
    assert code == 0, err
    process = _start(*arguments, "--out", "cut", "--quiet", cwd=tmp_path)
    _wait_for_rounds(tmp_path / "cut", 1 + os.urandom(1)[0] % 30, process)  # any round will do
    process.send_signal(sent)
    process.communicate()
    assert process.returncode in (-sent, 130, 0)
    code, again, err = _train("--resume", "--out", "cut", "--json", "-", cwd=tmp_path)
    assert code == 0, err
    assert _rows(tmp_path / "cut") == _rows(tmp_path / "whole")
    different = {"seconds"}
    one, two = json.loads(out), json.loads(again)
    assert {k: v for k, v in one.items() if k not in different} == {k: v for k, v in two.items() if k not in different}


@pytest.mark.parametrize("full", ["full", "0"])
def test_full_gradients_and_the_theorems_average_from_the_command_line(tmp_path, full):
    arguments = ["--model", "softmax", "--clients", "2", "--local-steps", "2", "--rounds", "2", "--average", "local"]
    code, _, err = _train(*arguments, "--batch-size", full, "--out", "run", "--json", "-", cwd=tmp_path)
    assert code == 0, err
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "batch_size: null" in saved
    assert "average: local" in saved
    code, _, err = _train(*arguments, "--topology", "ring", "--out", "other", cwd=tmp_path)
    assert code != 0
    assert "only the in-process engine" in err
