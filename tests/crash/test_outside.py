"""What goes wrong outside the program, through the real command line: one message, no traceback, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from desketch.core.rows import read_rows

SMALL = ["--model", "softmax", "--clients", "3", "--partition", "iid", "--local-steps", "1", "--b", "32"]
RUN = ["train", *SMALL, "--rounds", "4", "--checkpoint-every", "1"]
NOBODY = 65534


@pytest.fixture(scope="module")
def whole(desketch, tmp_path_factory):
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = desketch(*RUN, "-q", "--out", folder)
    assert (done["status"], done["err"]) == (0, "")
    return folder, done["operations"]


def one_message(done, *words, status=2):
    """The command said one thing, on standard error, and left as it should."""
    assert done["status"] == status, done["err"]
    assert done["err"].count("\n") == 1, done["err"]
    assert "Traceback" not in done["err"]
    for word in words:
        assert word in done["err"]


def model(folder):
    return (folder / "model.safetensors").read_bytes()


def test_a_full_disk_loses_nothing(desketch, whole, tmp_path):
    """Whenever it fills up: one message that says how to go on, and then the run goes on to the same model."""
    reference, operations = whole
    for fail in range(1, operations, 7):
        out = tmp_path / str(fail)
        one_message(desketch(*RUN, "-q", "--out", out, fail=fail), str(out), "No space left on device", "mend that")
        done = desketch(*RUN, "-q", "--out", out, *(["--resume"] if (out / "config.yaml").exists() else []))
        assert (done["status"], done["err"]) == (0, "")
        assert model(out) == model(reference)


def test_a_file_size_limit_is_no_traceback(tmp_path):
    """A real error of the kernel's, in a real process: the limit strikes in the report, the largest file."""
    command = f"ulimit -f 40; exec {sys.executable} -m desketch {' '.join(RUN)} -q --out {tmp_path / 'run'}"
    env = {**os.environ, "COLUMNS": "400"}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True)
    one_message({"status": done.returncode, "err": done.stderr}, "report.html: File too large", "--resume")
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl").rows) == 4


def test_a_read_only_folder_is_refused_before_training(desketch, whole, tmp_path):
    user = {"user": NOBODY} if os.geteuid() == 0 else {}  # root may write anywhere
    tmp_path.chmod(0o555)
    log = tmp_path / "log"
    for where in ("--out", "--json"):
        done = desketch(*RUN, "-q", where, tmp_path / "deep" / "x", log=str(log), **user)
        one_message(done, f"cannot write {where}", "Permission denied")
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    "argv",
    [
        [*RUN, "-q", "--out", "{}/file"],
        [*RUN, "-q", "--out", "{}/file/deep"],
        [*RUN, "-q", "--out", "{}/run", "--json", "{}"],
        [*RUN, "-q", "--out", "{}/run", "--json", "{}/file/x.json"],
        ["audit", "--html", "{}/file/x.html"],
        ["account", "--json", "{}"],
        ["verify", "--quick", "--json", "{}/file/x"],
        ["compare", "--out", "{}/file"],
        ["attack", "--out", "{}/file"],
        ["plan", "--json", "{}"],
        ["bench", "engine", "--json", "{}"],
    ],
    ids=lambda argv: " ".join(argv[-3:]),
)
def test_outputs_are_tried_before_the_work(desketch, tmp_path, argv):
    (tmp_path / "file").write_text("")
    one_message(desketch(*(part.format(tmp_path) for part in argv)), "cannot write --")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_run_after_its_round_and_it_goes_on(desketch, whole, tmp_path, name):
    reference, _ = whole
    done = desketch(*RUN, "-q", "--out", tmp_path / "run", signal=[name, 2])
    one_message(done, f"{name} ended the run after round 2", "--resume", status=128 + signal.Signals[name])
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl").rows) == 2
    assert desketch("train", "--resume", "-q", "--out", tmp_path / "run")["status"] == 0
    assert model(tmp_path / "run") == model(reference)


def test_a_hangup_that_nohup_ignores_stays_ignored(tmp_path):
    zygote = [sys.executable, str(Path(__file__).parent / "zygote.py")]
    order = f'{{"argv": {[*RUN, "-q", "--out", str(tmp_path / "run")]}, "signal": ["SIGHUP", 2]}}'.replace("'", '"')
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    subprocess.run(zygote, input=order + "\n", text=True, check=True, capture_output=True, preexec_fn=ignore)
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl").rows) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "toaster"], "device 'toaster'"),
        (["--device", "cuda:99"], "device 'cuda:99'"),
        (["--device", "meta"], "device 'meta'"),
        (["--seed", "-1"], "seed"),
        (["--seed", str(2**63)], "seed"),
        (["--model", "no.such:thing"], "cannot import model"),
        (["--model", "os:nothing"], "cannot import model"),
        (["--model", ":function"], "cannot import model"),
        (["--model", "os:sep"], "not callable"),
        (["--model", "os:getcwd"], "takes no arguments"),
        (["--model", "builtins:id"], "expected a torch.nn.Module"),
        (["--task", "csv:/nowhere/at/all.csv"], "/nowhere/at/all.csv"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_settings_are_one_message(desketch, tmp_path, arguments, words):
    done = desketch(*RUN, "-q", *arguments, "--out", tmp_path / "run")
    one_message(done, words)
    assert not (tmp_path / "run").exists()


def test_the_largest_seed_is_a_seed(desketch, tmp_path):
    done = desketch(*RUN, "-q", "--rounds", "1", "--seed", 2**63 - 1, "--out", tmp_path / "run")
    assert (done["status"], done["err"]) == (0, "")


def test_a_traceback_is_there_for_who_asks(desketch, tmp_path):
    done = desketch(*RUN, "--model", "os:sep", "--out", tmp_path / "run", env={"DESKETCH_DEBUG": "1"})
    assert "Traceback" in done["err"]


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize(
    "name", ["config.yaml", "checkpoint", "metrics.jsonl", "model.safetensors", "summary.json", "report.html"]
)
def test_a_lost_file_is_named_or_made_again(desketch, whole, tmp_path, name, damage):
    """Deleted, or cut in half: what follows from other files is made again, what does not is named."""
    reference, _ = whole
    out = tmp_path / "run"
    subprocess.run(["cp", "-r", reference, out], check=True)
    for path in (out / name).iterdir() if (out / name).is_dir() else [out / name]:
        path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = desketch("train", "--resume", "-q", "--out", out)
    if name == "checkpoint":
        one_message(done, "no checkpoint" if damage == "missing" else "round-000004.safetensors is damaged", "restore")
    elif name == "config.yaml":
        one_message(done, f"config.yaml is {damage}", "with --config")
        again = desketch("train", "--resume", "-q", "--out", out, "--config", reference / "config.yaml")
        assert (again["status"], model(out)) == (0, model(reference))
    else:
        assert done["status"] == 0, done["err"]
        assert model(out) == model(reference)
