"""desketch plan: the shapes people type, one JSON document, one message for a mistake, and no torch."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from desketch.cli.plan import app
from desketch.cli.units import bits_per_second, count, seconds
from desketch.errors import InputError

FLAGS = [
    f"--{name}={value}"
    for name, value in {
        "params": "1e6",
        "clients": 100,
        "smoothness": 10,
        "strong-convexity": 0.1,
        "target-error": 1e-3,
        "distance": 10,
        "heterogeneity": 1,
        "uplink": "1Mbit",
        "downlink": "5Mbit",
        "latency": "50ms",
        "objective": "time",
    }.items()
]


def test_json_is_one_document_with_every_choice():
    result = CliRunner().invoke(app, [*FLAGS, "--trace-ratio", "20", "--json", "-"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert set(document["plans"]) == {"theorem", "curvature"}
    for p in (*document["plans"].values(), document["local_gd"]):
        assert {"family", "b", "K", "T", "eta_local", "eta_global", "codec", "bits", "seconds", "binds"} <= set(p)
    assert document["question"]["target_error"] == 1e-3
    assert {"order_of_growth", "compare_with_local_gd", "linear_rate_down_to"} <= set(document["communication"])
    assert [row["d"] for row in document["growth"]["d"]] == [10**i for i in range(3, 10)]
    assert [row["N"] for row in document["growth"]["N"]] == [10**i for i in range(1, 7)]


def test_the_table_names_what_binds(tmp_path):
    result = CliRunner().invoke(app, [*FLAGS, "--participation", "0.5", "--json", str(tmp_path / "plan.json")])
    assert result.exit_code == 0
    assert "what binds" in result.stdout
    assert result.stdout.startswith("Send ")
    assert "per client; FedAvg" in " ".join(result.stdout.split())
    assert "epsilon" not in result.stdout
    assert json.loads((tmp_path / "plan.json").read_text())["notes"]


@pytest.mark.parametrize("columns", [80, 100])
def test_nothing_is_cut_off(columns, monkeypatch):
    """Labels stand on one line at either width; no cell ends in an ellipsis."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for curvature in ("0.1", "0", "non-convex"):
        result = CliRunner().invoke(app, [*FLAGS, "--trace-ratio", "20", "--strong-convexity", curvature])
        assert result.exit_code == 0, result.output
        assert "…" not in result.stdout
        assert max(map(len, result.stdout.splitlines())) <= columns
        for label in ("alpha (with noise)", "bound on the error", "bytes per client", "what binds", "rounds T"):
            assert any(line.strip().startswith(label) for line in result.stdout.splitlines())
        shown = " ".join(result.stdout.split())
        assert ("order of growth (numbers)" in shown) is (curvature != "non-convex")
        assert ("linear rate down to" in shown) is (curvature == "0.1")


@pytest.mark.parametrize(("params", "warned"), [("8", True), ("1e6", False)])
def test_a_small_one_bit_sketch_is_warned_about(params, warned):
    flags = [*FLAGS, "--codec", "sign1", "--params", params, "--objective", "rounds", "--json", "-"]
    document = json.loads(CliRunner().invoke(app, flags).stdout)
    assert any("from unbiased" in note for note in document["notes"]) is warned


def test_mini_batches_privacy_and_absence_cost_rounds():
    def rounds(*flags):
        result = CliRunner().invoke(app, [*FLAGS, *flags, "--json", "-"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["plans"]["theorem"]["T"]

    plain = rounds()
    assert rounds("--gradient-noise", "30") > plain
    assert rounds("--noise-multiplier", "1", "--clip", "1") > plain
    assert rounds("--participation", "0.5") > plain


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (["--target-error", "1"], "--params, --clients, --smoothness"),
        ([*FLAGS, "--strong-convexity", "steep"], "non-convex"),
        ([*FLAGS, "--uplink", "1MB"], "link speed"),
        ([*FLAGS, "--latency", "soon"], "duration"),
        ([*FLAGS, "--params", "1.5"], "whole number"),
        ([*FLAGS, "--from-run", "no-such-run"], "run folder"),
        ([*FLAGS, "--from-run", "here", "--model", "cnn"], "not both"),
        ([*FLAGS, "--codec", "int3"], "codecs are some of"),
        ([*FLAGS, "--noise-multiplier", "1"], "clip"),
        (FLAGS[:4] + FLAGS[5:], "--target-error"),
        (["--target-error", "1", "--params", "9", "--clients", "2", "--smoothness", "1", "--gap", "1"], "--spread"),
        (["--target-error", "1", "--params", "9", "--clients", "2", "--smoothness", "1", "--gap", "1",
          "--strong-convexity", "0"], "--distance"),
    ],
)  # fmt: skip
def test_mistakes_are_named(flags, match):
    result = CliRunner().invoke(app, flags)
    assert isinstance(result.exception, ValueError | InputError)
    assert match in str(result.exception)


def test_the_example_that_a_bare_plan_prints_runs():
    printed = CliRunner().invoke(app, []).stdout
    (line,) = [line for line in printed.splitlines() if "--params" in line]
    result = CliRunner().invoke(app, line.split()[2:])
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("Send ")


def test_units():
    assert bits_per_second("1Mbit") == bits_per_second("1000 kbit/s") == bits_per_second("1Mbps") == 1e6
    for text in ("1MBps", "1M", "1", "fast", "1.2.3Mbit"):
        with pytest.raises(InputError, match="link speed"):
            bits_per_second(text)
    assert seconds("50ms") == seconds("0.05") == seconds("5e-2 s")
    assert count("1e6") == 1_000_000


def test_plan_runs_without_torch_or_numpy():
    code = (
        "import sys; from typer.testing import CliRunner; from desketch.cli.plan import app;"
        f"r = CliRunner().invoke(app, {FLAGS!r} + ['--json', '-']); assert r.exit_code == 0, r.output;"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_constants_are_estimated_from_a_run_folder(tmp_path):
    from desketch.tasks import RunConfig

    RunConfig(task="digits", model="softmax", clients=4, partition="dirichlet:0.5").save(tmp_path / "config.yaml")
    result = CliRunner().invoke(app, ["--from-run", str(tmp_path), "--target-error", "1e-2", "--json", "-"])
    assert result.exit_code == 0, result.output
    question = json.loads(result.stdout)["question"]
    assert question["d"] == 650
    assert question["N"] == 4
    assert 1 <= question["trace_ratio"] <= 650
    assert question["problem"]["L"] > 0
    assert question["problem"]["sigma_star"] > 0
    fixed = CliRunner().invoke(
        app, ["--from-run", str(tmp_path), "--target-error", "1e-2", "--clients", "7", "--json", "-"]
    )
    assert json.loads(fixed.stdout)["question"]["N"] == 7


def test_constants_are_estimated_from_a_model_and_a_task_and_say_how():
    flags = ["--model", "softmax", "--task", "digits", "--clients", "5", "--partition", "iid"]
    result = CliRunner().invoke(app, [*flags, "--json", "-"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["question"]["N"] == 5
    assert document["question"]["gradient_noise"] > 0
    assert document["question"]["target_error"] > 0
    assert {"L", "trace_ratio", "sigma_star", "distance", "gradient_noise", "eps"} <= set(document["estimated"])
    assert "Lanczos" in document["estimated"]["L"]
    given = CliRunner().invoke(app, [*flags, "--smoothness", "3", "--gradient-noise", "0", "--target-error", "1"])
    shown = " ".join(given.stdout.split())
    assert "smoothness L" not in shown  # what was given was not estimated
    assert "mini-batch noise" not in shown
    assert "tr(H)/λ_max" in shown
