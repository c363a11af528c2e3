"""``desketch attack`` and ``desketch audit``: a captured run is rebuilt, pages fetch nothing, exit codes gate CI."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from desketch.attack.scenario import Data, Scenario
from desketch.cli.attack import app as attack_app
from desketch.cli.audit import _warn_of_many
from desketch.cli.audit import app as audit_app
from desketch.cli.train import app as train_app
from desketch.errors import InputError
from desketch.tasks import load_task

RUN = CliRunner()


def invoke(app, *arguments):
    outcome = RUN.invoke(app, [str(a) for a in arguments])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("leak") / "run"
    common = ["--task", "digits", "--model", "mlp-tanh:32", "--clients", 10, "--rounds", 1, "--local-steps", 1]
    wire = ["--batch-size", 1, "--codec", "f32", "--compression", 30, "--family", "countsketch", "--capture", "1"]
    invoke(train_app, *common, *wire, "--out", out, "-q")
    return out


def test_captured_frame_is_rebuilt(run_folder, tmp_path):
    frame = run_folder / "capture" / "round-0001" / "client-0002.frame"
    outcome = invoke(attack_app, "--frame", frame, "--checkpoint", run_folder, "--out", tmp_path, "--json", "-")
    document = json.loads(outcome.stdout)
    assert document["success"]
    assert document["psnr"] > 60
    assert (document["unknowns"], document["client"], document["round"]) == (64, 2, 1)
    with np.load(tmp_path / "arrays.npz") as arrays:
        np.testing.assert_allclose(arrays["reconstruction"], arrays["original"], atol=1e-3)
    assert (tmp_path / "attack.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "attack.json").read_text()) == document


def test_frame_beside_its_weights_needs_no_checkpoint(run_folder, tmp_path):
    frame = run_folder / "capture" / "round-0001" / "client-0000.frame"
    assert "recovered" in invoke(attack_app, "--frame", frame, "--out", tmp_path).stdout


def test_a_mean_of_several_updates_is_not_attacked_as_if_it_were_one(tmp_path):
    """It would be rebuilt wrongly, and look as if nothing leaked."""
    common = ["--model", "mlp-tanh:32", "--clients", 3, "--rounds", 2, "--local-steps", 1, "--batch-size", 1]
    wire = ["--codec", "f32", "--capture", "1,2", "-q"]
    for beta in ("auto", 0):
        invoke(train_app, *common, *wire, "--client-momentum", beta, "--out", tmp_path / f"{beta}")
    frames = {beta: tmp_path / beta / "capture" / "round-0002" / "client-0001.frame" for beta in ("auto", "0")}
    with pytest.raises(InputError, match=r"a mean of the client's updates.*--client-momentum 0"):
        invoke(attack_app, "--frame", frames["auto"], "--out", tmp_path / "attack")
    assert "recovered" in invoke(attack_app, "--frame", frames["0"], "--out", tmp_path / "attack").stdout
    first = tmp_path / "auto" / "capture" / "round-0001" / "client-0001.frame"
    assert "recovered" in invoke(attack_app, "--frame", first, "--out", tmp_path / "attack").stdout


@pytest.mark.parametrize("name", ["missing.frame", "client-0001.txt"])
def test_wrong_frames_are_refused(run_folder, tmp_path, name):
    folder = run_folder / "capture" / "round-0001"
    (folder / "client-0001.txt").write_bytes((folder / "client-0001.frame").read_bytes())
    with pytest.raises(InputError):
        invoke(attack_app, "--frame", folder / name, "--out", tmp_path)


def test_frame_without_weights_is_refused(run_folder, tmp_path):
    frame = tmp_path / "client-0001.frame"
    frame.write_bytes((run_folder / "capture" / "round-0001" / "client-0001.frame").read_bytes())
    with pytest.raises(InputError, match="checkpoint"):
        invoke(attack_app, "--frame", frame, "--out", tmp_path)
    with pytest.raises(InputError, match="captured"):
        invoke(attack_app, "--checkpoint", run_folder, "--out", tmp_path)


def test_synthetic_message(tmp_path):
    outcome = invoke(attack_app, "--family", "countsketch", "--out", tmp_path, "--json", "-")
    assert json.loads(outcome.stdout)["success"]


def test_audit_document_page_and_gate(tmp_path):
    options = ["--family", "countsketch", "--seeds", 2, "--delta", "1e-5", "--html", tmp_path / "a.html"]
    outcome = invoke(audit_app, *options, "--json", "-", "--fail-above", 30)
    assert outcome.exit_code == 1
    document = json.loads(outcome.stdout)
    assert document["verdict"] == "recovered"
    assert document["success_rate"] == 1.0
    assert len(document["wilson"]) == 2
    assert {"phase_diagram", "psnr_over_rounds", "landscape", "settings"} <= document.keys()
    page = (tmp_path / "a.html").read_text()
    assert "Leakage audit: recovered" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "cannot hold" in page


def test_audit_without_sketching(tmp_path):
    options = ["--family", "none", "--seeds", 1, "--no-curves", "--known-labels", "--html", tmp_path / "raw.html"]
    document = json.loads(invoke(audit_app, *options, "--json", "-").stdout)
    assert document["verdict"] == "recovered"
    assert document["measurements"] == 2410
    assert document["settings"]["compression"] == 1.0
    assert document["landscape"]["constants"]["gamma_2"] == 1.0
    promises = {p["theorem"]: p for p in document["landscape"]["promises"]}
    assert promises["unique minimum, as printed"]["holds"]
    assert "raw" in (tmp_path / "raw.html").read_text()


def test_audit_passes_the_gate_when_noise_wins(tmp_path):
    options = ["--family", "countsketch", "--seeds", 1, "--no-curves", "--noise-std", 0.2, "--solvers", "prior"]
    outcome = invoke(audit_app, *options, "--json", tmp_path / "a.json", "--fail-above", 25)
    assert outcome.exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text())["verdict"] == "noise-limited"
    assert "verdict: noise-limited" in outcome.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["--noise-at", "moon"],
        ["--local-steps", 3],
        ["--compression", 0.5],
        ["--solvers", "newton"],
        ["--family", "none", "--b", 75],
        ["--family", "none", "--compression", 8],
    ],
)
def test_audit_refuses_nonsense(wrong):
    with pytest.raises(InputError):
        invoke(audit_app, "--seeds", 1, "--no-curves", *wrong)


def test_an_audit_takes_the_settings_of_a_run_and_flags_win(tmp_path):
    settings = ("--model", "mlp-tanh:8", "--batch-size", 1, "--local-steps", 2, "--codec", "f16", "--compression", 5)
    invoke(train_app, "--rounds", 1, *settings, "--out", tmp_path / "run", "--quiet")
    page, answer = tmp_path / "page.html", tmp_path / "answer.json"
    flags = ("--seeds", 1, "--no-curves", "--codec", "f32", "--html", page, "--json", answer)
    said = invoke(audit_app, "--from-run", tmp_path / "run", *flags).stdout
    used = json.loads(answer.read_text())["settings"]
    assert {name: used[name] for name in ("model", "batch", "local_steps", "eta_local", "codec", "compression")} == {
        "model": "mlp-tanh:8",
        "batch": 1,
        "local_steps": 2,
        "eta_local": 0.1,
        "codec": "f32",
        "compression": 5.0,
    }
    assert "verdict" in said
    assert all(word not in page.read_text() for word in ("{'", "does_not_know"))
    assert str(page) in said.replace("\n", "")


def test_an_audit_takes_a_compression_over_a_run_s_b_and_refuses_what_it_would_ignore(tmp_path):
    settings = ("--model", "mlp-tanh:8", "--batch-size", 1, "--local-steps", 1, "--b", 90)
    invoke(train_app, "--rounds", 1, *settings, "--out", tmp_path / "run", "--quiet")
    flags = ("--seeds", 1, "--no-curves", "--compression", 2, "--json", "-")
    used = json.loads(invoke(audit_app, "--from-run", tmp_path / "run", *flags).stdout)
    assert (used["settings"]["b"], used["settings"]["compression"]) == (None, 2.0)
    text = (tmp_path / "run" / "config.yaml").read_text().replace("family_options: {}", "family_options: {block: 64}")
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(InputError, match="options"):
        invoke(audit_app, "--from-run", tmp_path / "run")


@pytest.mark.parametrize(("batch", "warned"), [(16, 1), (15, 0)])
def test_an_audit_of_many_unknowns_is_warned_of(recwarn, batch, warned):
    task = load_task("digits")  # 64 numbers each
    data = Data(task.x_test.double(), task.y_test, task.x_train.double(), task.y_train, task.classes)
    _warn_of_many(Scenario(data=data, build=lambda seed: torch.nn.Linear(64, 10), batch=batch))
    assert sum("unknowns" in str(warning.message) for warning in recwarn) == warned
