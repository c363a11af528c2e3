import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from desketch.cli.app import cli
from desketch.errors import DesketchError, InputError, PrivacyError
from desketch.privacy.accountants import epsilon
from desketch.privacy.calibrate import Budget
from desketch.privacy.events import Gaussian, Ledger, LocalSteps, PoissonSampled
from desketch.privacy.record import PrivacyRecord, read_record, write_record

FLAGS = ["--examples", "2000", "--batch", "64", "--local-steps", "3", "--rounds", "80"]


def account(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["account", *arguments])


def document(*arguments: str) -> dict[str, object]:
    result = account(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_json_shape_and_values() -> None:
    data = document(*FLAGS, "--noise-multiplier", "1.5", "--delta", "1e-6")
    assert list(data) == ["pld", "rdp", "paper"]
    ledger = Ledger("example").plus(LocalSteps(2000, 64, 3, 1.5), count=80)
    assert data["pld"] == epsilon(ledger, 1e-6)
    assert data["rdp"] == epsilon(ledger, 1e-6, method="rdp")
    assert {k: v for k, v in data["paper"].items() if k != "why"} == {"nested": None, "flat": None, "subsampled": None}
    assert set(data["paper"]["why"]) == {"nested", "flat", "subsampled"}


def test_calibrating_draws_what_the_noise_will_spend(tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    found = document(*FLAGS[:-1], "8", "--epsilon", "4", "--delta", "1e-5", "--calibrate", "--plot", str(plot))
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert found["curve"]["pld"][-1] == pytest.approx(4, abs=0.01)


def test_calibrate_is_the_inverse() -> None:
    z = document(*FLAGS, "--epsilon", "4", "--delta", "1e-5", "--calibrate")["noise_multiplier"]
    assert document(*FLAGS, "--noise-multiplier", str(z), "--delta", "1e-5")["pld"] == pytest.approx(4, rel=1e-4)


def test_client_level_table() -> None:
    result = account(*["--sampling-rate", "0.1", "--rounds", "20", "--noise-multiplier", "2", "--delta", "1e-5"])
    assert result.exit_code == 0
    assert "unit: client" in result.output


def test_run_folder_and_curve_and_plot(tmp_path: Path) -> None:
    ledger = Ledger("client").plus(PoissonSampled(0.2, Gaussian(2.0)), count=5)
    write_record(tmp_path / "privacy.json", PrivacyRecord({"mechanism": "m"}, ledger, 1e-5, Budget(4.0, 1e-5)))
    assert read_record(tmp_path / "privacy.json").ledger == ledger
    data = document(str(tmp_path), "--curve", "--plot", str(tmp_path / "curve.png"))
    assert data["curve"]["pld"][-1] == data["pld"]
    assert data["curve"]["pld"] == sorted(data["curve"]["pld"])
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    dp = {"mechanism": "per-step", "delta": 1e-6, "clip": 1.0, "noise_multiplier": None}
    file.write_text(yaml.safe_dump({"rounds": 80, "local_steps": 3, "batch_size": 64, "dp": dp}))
    data = document(str(file), "--examples", "2000", "--noise-multiplier", "1.5")
    assert data["pld"] == document(*FLAGS, "--noise-multiplier", "1.5", "--delta", "1e-6")["pld"]


def test_a_json_file_is_written_beside_the_table(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    result = account(
        *["--sampling-rate", "1", "--rounds", "1", "--noise-multiplier", "2", "--delta", "1e-5", "--json"], str(target)
    )
    pld = json.loads(target.read_text())["pld"]
    assert f"{pld:.5g}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ([*FLAGS, "--noise-multiplier", "1"], InputError, "delta is missing"),
        ([*FLAGS, "--noise-multiplier", "1", "--delta", "1"], InputError, "delta must lie"),
        ([*FLAGS, "--noise-multiplier", "0", "--delta", "1e-5"], InputError, "noise_multiplier must be"),
        ([*FLAGS, "--delta", "1e-5"], InputError, "missing --noise-multiplier"),
        ([*FLAGS, "--delta", "1e-5", "--calibrate"], InputError, "needs a target"),
        ([*FLAGS, "--delta", "1e-5", "--calibrate", "--epsilon", "-1"], InputError, "epsilon must be"),
        (["--noise-multiplier", "1", "--delta", "1e-5", "--rounds", "3"], InputError, "missing --examples"),
        ([*FLAGS, "--batch", "2001", "--noise-multiplier", "1", "--delta", "1e-5"], InputError, "batch of 2001"),
        (["no-such-folder", "--delta", "1e-5"], InputError, "privacy.json"),
    ],
)
def test_bad_input(arguments: list[str], error: type[DesketchError], words: str) -> None:
    result = account(*arguments)
    assert isinstance(result.exception, error)
    assert words in str(result.exception)


def test_a_not_private_run_folder_is_refused(tmp_path: Path) -> None:
    ledger = Ledger("client", not_private="NOT PRIVATE: test noise").plus(Gaussian(1.0))
    write_record(tmp_path / "privacy.json", PrivacyRecord({}, ledger, 1e-5))
    result = account(str(tmp_path), "--delta", "1e-5")
    assert isinstance(result.exception, PrivacyError)
    assert "NOT PRIVATE" in str(result.exception)


def test_a_broken_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_text('{"claim": {}, "budget": null}')
    assert isinstance(account(str(tmp_path), "--delta", "1e-5").exception, PrivacyError)
