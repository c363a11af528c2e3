"""RunConfig: files and flags, one set of names, refusals that help."""

import subprocess
import sys

import pytest

from desketch.errors import ConfigError
from desketch.tasks import RunConfig

DP = {"mechanism": "sketch-clip", "delta": 1e-5, "clip": 1.0, "epsilon": 4.0}


def test_defaults():
    config = RunConfig()
    assert (config.task, config.clients, config.partition) == ("digits", 20, "dirichlet:0.5")
    assert (config.family, config.compression, config.local_steps, config.eta_global) == ("srht", 30, 20, "auto")
    assert config.dp is None


def test_save_and_load_are_inverse(tmp_path):
    config = RunConfig(dp=DP, b=100, eta_global=0.3, capture=(1, 2), batch_size=None, family_options={"nnz": 4})
    config.save(tmp_path / "config.yaml")
    assert RunConfig.load(tmp_path / "config.yaml") == config
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_flags_win_over_the_file_and_dp_merges(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('rounds = 5\nclients = 7\n[dp]\nmechanism = "sketch-clip"\ndelta = 1e-6\nclip = 0.5\nepsilon = 2\n')
    config = RunConfig.load(path, rounds=9, clients=None, dp={"epsilon": 3.0, "clip": None})
    assert (config.rounds, config.clients) == (9, 7)
    assert (config.dp.epsilon, config.dp.clip, config.dp.delta) == (3.0, 0.5, 1e-6)
    assert RunConfig.load(path, dp={"clip": None}).dp.epsilon == 2.0
    assert RunConfig.load(None, dp={"clip": None}).dp is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"compresion": 3}, "did you mean 'compression'"),
        ({"learning_rate_of_server": 3}, "unknown setting"),
        ({"xyzzy": 3}, "known are task"),
        ({"codec": "int2"}, "codec: got 'int2', expected one of f32"),
        ({"family": "haar"}, "family: got 'haar'"),
        ({"rounds": 0}, "rounds: .*greater than or equal to 1"),
        ({"fraction": 0.0}, "fraction"),
        ({"fraction": float("nan")}, "fraction"),
        ({"eta_global": "fast"}, "eta_global.*'auto'"),
        ({"eta_global": -1.0}, "positive number or auto"),
        ({"server_optimizer": "lamb"}, "'sgd', 'momentum'"),
        ({"dp": {**DP, "mechansm": 1}}, "dp: unknown setting 'mechansm'; did you mean 'mechanism'"),
        (
            {"dp": {"mechanism": "sketch-clip", "epsilon": 1.0}},
            "delta: not given; set dp.delta, or --delta.*; clip: not",
        ),
        ({"dp": {**DP, "mechanism": None}}, "mechanism"),
        ({"label": "y"}, "label names columns of a task csv:FILE, got label 'y' of digits"),
        ({"task": "npz:a.npz", "label": "y"}, "drop it"),
        ({"level": "byte"}, "level is a setting of a task text:FILE"),
        ({"context": 32}, "got context 32 of digits"),
        ({"dp": {**DP, "epsilon": None}}, "no default"),
        ({"dp": {**DP, "delta": 1.0}}, "delta"),
        ({"dp": {**DP, "epsilon": 0.0}}, "epsilon"),
        ({"dp": {**DP, "clip": -1.0}}, "clip"),
        ({"dp": {**DP, "mechanism": "per-step", "unit": "client"}}, "use mechanism 'sketch-clip'"),
        ({"dp": {**DP, "unit": "example"}}, "needs local_steps 1"),
        ({"dp": 3}, "dp"),
        ({"gossip_steps": 3}, "set topology too"),
        ({"batch_size": "half"}, "batch_size"),
        ({"average": "local", "engine": "flower-sim"}, "only the in-process engine"),
        ({"average": "local", "topology": "ring"}, "only the in-process engine"),
        ({"average": "local", "dp": DP}, "must not be released"),
    ],
)
def test_bad_settings_are_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        RunConfig(**settings)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "{}", "a .yaml, .yml or .toml file"),
        ("a.yaml", "rounds: [", "cannot read"),
        ("a.toml", "rounds = ", "cannot read"),
        ("a.yaml", "- 1", "name: value"),
        ("a.yaml", "1: 2", "name: value"),
        ("a.yaml", "round: 2", "did you mean 'rounds'"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=reason):
        RunConfig.load(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot read"):
        RunConfig.load(tmp_path / "absent.yaml")


def test_an_empty_file_means_the_defaults_and_yaml_numbers_may_be_sloppy(tmp_path):
    (tmp_path / "a.yaml").write_text("")
    assert RunConfig.load(tmp_path / "a.yaml") == RunConfig()
    (tmp_path / "a.yaml").write_text("eta_local: 1e-2\n")
    assert RunConfig.load(tmp_path / "a.yaml").eta_local == 0.01


def test_sketch_size_group_and_identity():
    assert RunConfig().sketch_size(3000) == 100
    assert RunConfig(b=7).sketch_size(3000) == 7
    with pytest.raises(ConfigError, match="at most d = 5"):
        RunConfig(b=7).sketch_size(5)
    assert RunConfig(compression=10).sketch_size(10) == 1
    with pytest.raises(ConfigError, match="at most 10"):
        RunConfig(compression=1000).sketch_size(10)
    assert RunConfig(partition="column:site").group == "site"
    assert RunConfig().group is None
    assert RunConfig(rounds=9, out="x").identity() == RunConfig().identity()
    assert RunConfig(seed=9).identity() != RunConfig().identity()


def test_the_full_gradient_has_a_name(tmp_path):
    (tmp_path / "a.yaml").write_text("batch_size: full\n")
    assert RunConfig.load(tmp_path / "a.yaml") == RunConfig(batch_size=None) == RunConfig.load(batch_size="full")


def test_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().rounds = 3


def test_configuration_needs_no_torch():
    code = "import sys; from desketch.tasks import RunConfig; RunConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_momentum_for_an_optimiser_without_any_is_refused():
    with pytest.raises(ConfigError, match=r"sgd has no momentum, got 0\.2"):
        RunConfig(server_optimizer="sgd", momentum=0.2)
    assert RunConfig(server_optimizer="sgd", momentum=0.0).momentum == 0.0
