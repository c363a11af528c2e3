"""A written deployment: settings survive Flower's table, keys are private, scripts name every process."""

from __future__ import annotations

import stat
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from desketch.errors import ConfigError
from desketch.integrations.flower.deploy import DeploymentPlan
from desketch.integrations.flower.party import read_settings
from desketch.tasks.config import RunConfig

# the noise is weak on purpose: these tests look at what is applied, not at what it is worth
pytestmark = pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")

DP = {"mechanism": "sketch-clip", "delta": 1e-5, "clip": 0.5, "noise_multiplier": 1.0}


def plan(tmp_path, **options):
    return DeploymentPlan(folder=tmp_path / "run", config=RunConfig(clients=2, rounds=7, dp=DP), **options)


@pytest.mark.parametrize("batch_size", [16, None])
def test_settings_survive_the_project(tmp_path, batch_size):
    config = RunConfig(clients=2, rounds=7, dp=DP, batch_size=batch_size)
    deployment = DeploymentPlan(folder=tmp_path / "run", config=config)
    deployment.write(round_timeout=12.0)
    table = tomllib.loads((deployment.project / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert set(table["components"]) == {"serverapp", "clientapp"}
    flat = {}
    for name, value in table["config"].items():
        flat |= {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value}
    config, extra = read_settings(flat)
    assert config.identity() == deployment.config.identity()
    assert config.dp == deployment.config.dp
    assert extra == {"round_timeout": 12.0, "min_nodes": 2.0}


def test_keys_are_made_once_verify_and_stay_private(tmp_path):
    deployment = plan(tmp_path, secure=True, host="192.0.2.7")
    deployment.write()
    keys = deployment.keys
    ca = x509.load_pem_x509_certificate((keys / "ca.pem").read_bytes())
    server = x509.load_pem_x509_certificate((keys / "server.pem").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"192.0.2.7", "127.0.0.1"}
    for private in keys.glob("*.key"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
    pair = load_ssh_private_key((keys / "node-1.key").read_bytes(), None)
    assert pair.public_key() == load_ssh_public_key((keys / "node-1.pub").read_bytes())
    before = (keys / "node-1.key").read_bytes()
    deployment.write()
    assert (keys / "node-1.key").read_bytes() == before


def test_there_is_a_script_for_every_process_and_none_phones_home(tmp_path):
    deployment = plan(tmp_path, secure=True)
    deployment.write()
    scripts = {path.name: path.read_text() for path in deployment.folder.glob("*.sh")}
    nodes = {"3-node-0.sh", "3-node-1.sh"}
    assert set(scripts) == {"1-superlink.sh", "2-register-nodes.sh", "2-front.sh", *nodes, "4-run.sh"}
    for text in scripts.values():
        assert "FLWR_TELEMETRY_ENABLED=0" in text
        assert "umask 077" in text
        assert "FLWR_DISABLE_UPDATE_CHECK=1" in text
    assert "--enable-supernode-auth" in scripts["1-superlink.sh"]
    assert "while true" in scripts["3-node-0.sh"]
    assert "--insecure" not in "".join(scripts.values())


def test_unknown_settings_are_refused():
    with pytest.raises(ConfigError, match="unknown setting"):
        read_settings({"rouns": 3})
