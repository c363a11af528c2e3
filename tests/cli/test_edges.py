"""Slips of the hand on the command line: each is met by one sentence that says what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from desketch.__main__ import main as entry
from desketch.cli.app import main
from desketch.cli.plan import app as plan_app
from desketch.cli.train import app as train_app
from desketch.cli.train_show import show

SMALL = ["--model", "softmax", "--clients", "3", "--local-steps", "1", "--quiet"]


def said(capsys, monkeypatch, *arguments):
    """Exit code and everything said by ``desketch ARGUMENTS``."""
    monkeypatch.setattr(sys, "argv", ["desketch", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as exit:
        code = exit.code
    out = capsys.readouterr()
    return code, " ".join((out.out + out.err).split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "Did you mean train?"),
        (["train", "--compression", "1e9"], "set it to at most"),
        (["train", "--average", "0"], "average: got 0, expected at least 1 round"),
        (["train", "--capture", "0"], "capture: rounds count from 1"),
        (["train", "--eta-local", "-1"], "eta_local"),
        (["train", "--epsilon", "4"], "dp: mechanism: not given; set dp.mechanism, or --dp per-step"),
        (["train", "--nodes", "8"], "add --topology, or say --clients 8"),
        (["train", "--label", "y"], "csv:FILE"),
        (["deploy", "--engine", "mqtt", "--try", "0"], "0 is not in the range x>=1"),
        (["account", "--plot", "epsilon.xyz"], "--plot writes .png, .svg, .pdf, by the name's ending; got epsilon.xyz"),
    ],
)
def test_a_slip_is_named(capsys, monkeypatch, arguments, words):
    code, text = said(capsys, monkeypatch, *arguments)
    assert code == 2
    assert words in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds: 2\nrounds: 3\n", "'rounds' is set twice"),
        ("dp: {mechanism: per-step, clip: 1, clip: 2, delta: 1e-5}\n", "'clip' is set twice"),
        ("delta: 1e-5\n", "dp.delta"),
        ("noise_multiplier: 1\n", "dp.noise_multiplier"),
        ("local_step: 3\n", "did you mean 'local_steps'?"),
    ],
)
def test_a_slip_in_a_file_is_named(capsys, monkeypatch, tmp_path, text, words):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    code, answer = said(capsys, monkeypatch, "train", "--config", path)
    assert code == 2
    assert words in answer


def test_resuming_names_the_setting_that_differs_and_undoes_no_round(capsys, monkeypatch, tmp_path):
    place = ["--out", tmp_path / "run", *SMALL]
    assert said(capsys, monkeypatch, "train", "--rounds", 2, *place)[0] == 0
    code, text = said(capsys, monkeypatch, "train", "--resume", "--rounds", 3, *place, "--seed", 5)
    assert (code, "seed: 0 -> 5" in text) == (2, True)
    code, text = said(capsys, monkeypatch, "train", "--resume", "--rounds", 1, *place)
    assert (code, "has 2 rounds already" in text) == (2, True)
    assert said(capsys, monkeypatch, "train", "--resume", "--rounds", 3, *place)[0] == 0


@pytest.mark.parametrize(("idle", "warned"), [(None, False), (15, False), (16, True)])
def test_a_run_that_hardly_learnt_says_so(capsys, idle, warned):
    names = ("bytes_up_per_client", "bytes_down_per_client", "fedavg_bytes_per_client", "times_fewer_bytes", "seconds")
    summary = dict.fromkeys(names, 1.0) | {
        "rounds": 60,
        "stopped_by": "rounds",
        "replica_digest": "ab",
        "epsilon": None,
    }
    show(summary | {"refused": None, "skipped_rounds": idle}, Path("run"))
    said = " ".join(capsys.readouterr().out.split())
    assert ("16 of 60 rounds had no update that could be used" in said) == warned


def test_plan_without_arguments_explains_itself():
    done = CliRunner().invoke(plan_app, [])
    assert done.exit_code == 0
    assert "desketch plan --model" in done.output


def test_help_shows_every_option_once_and_in_groups():
    text = CliRunner().invoke(train_app, ["--help"]).output
    options = [word.strip("│ ") for line in text.splitlines() for word in line.split()[:2] if word.startswith("--")]
    assert len(options) == len(set(options)) > 40
    assert all(title in text for title in ("Data and model", "Clients", "Wire", "Server", "Privacy", "Run"))


@pytest.mark.parametrize("command", ["account", "deploy", "join", "report", "serve", "watch"])
def test_help_says_what_an_argument_is(capsys, monkeypatch, command):
    code, text = said(capsys, monkeypatch, command, "--help")
    arguments = text.split("Arguments")[1].split("╰")[0]
    assert code == 0
    assert re.search(r"run folder|Where to write|broker", arguments, re.IGNORECASE)


def test_ctrl_c_is_one_line_and_130(capsys, monkeypatch):
    def press() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("desketch.cli.app.import_module", lambda name: press())
    assert said(capsys, monkeypatch, "verify") == (130, "interrupted")


def test_ctrl_c_while_the_command_line_is_imported_is_one_line_and_130(capsys, monkeypatch):
    class Press:
        def find_spec(self, name, path=None, target=None):
            if name == "desketch.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "desketch.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Press(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        entry()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
