"""desketch verify: the theorems hold on small runs, false ones are caught, and the exit code says so."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from desketch.cli import verify as command
from desketch.verify import suite
from desketch.verify.checks import check_curved, check_exact, check_moments, check_runs, check_tails
from desketch.verify.moments import second_moment
from desketch.verify.objectives import Quadratic, objectives
from desketch.verify.refutations import refute
from desketch.verify.rows import Row, sampled_row
from desketch.verify.simulate import draw_sketches, run
from desketch.keys import Key
from desketch.theory.embedding import FAMILIES

D, B = 12, 4


@pytest.fixture(scope="module")
def draws():
    return draw_sketches(FAMILIES, d=D, b=B, seeds=12, rounds=50, key=Key(7).fold_in("verify tests"))


@pytest.mark.parametrize("objective", objectives(D), ids=lambda o: o.setting)
@pytest.mark.parametrize("K", [1, 5])
def test_bounds_hold_on_sampled_runs(objective, draws, K):
    rows = list(check_runs(objective, draws, K=K))
    assert rows
    assert [row for row in rows if not row.holds] == []


@pytest.mark.parametrize("objective", [o for o in objectives(D) if isinstance(o, Quadratic)], ids=lambda o: o.setting)
@pytest.mark.parametrize("K", [1, 5, 20])
def test_bounds_hold_in_exact_expectation(objective, K):
    rows = list(check_exact(objective, FAMILIES, b=B, K=K, rounds=300))
    assert {row.family for row in rows} == set(FAMILIES)
    assert [row for row in rows if not row.holds] == []


def test_the_single_step_bound_is_attained():
    isotropic = objectives(D)[0]
    rows = [r for r in check_exact(isotropic, FAMILIES, b=B, K=1, rounds=50) if r.theorem.startswith("thm:single")]
    assert [row.worst_ratio for row in rows] == pytest.approx([1.0] * len(FAMILIES))


def test_moments_tails_and_the_curved_alpha_hold(draws):
    curved = [row for K in (1, 5) for row in check_curved(FAMILIES, d=D, b=B, K=K, rounds=300)]
    rows = [*check_moments(draws), *check_tails(draws), *curved]
    assert [row for row in rows if not row.holds] == []


def test_false_statements_are_refuted_and_their_corrections_hold(draws):
    rows = list(refute(draws))
    assert [row for row in rows if not row.as_expected] == []
    assert {row.theorem for row in rows if row.refuted} == {
        "theorem of sec:app_kstep_non",
        "Algorithm 1",
        "lem:gaussian_ip",
        "lem:ams_ip",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_second_moment_matches_draws(family, draws):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((D, D))
    A = A @ A.T
    f = FAMILIES.index(family)
    R = draws.R[f * draws.seeds : (f + 1) * draws.seeds].reshape(-1, B, D).astype(float)
    M = R.transpose(0, 2, 1) @ R
    samples = np.einsum("nij,jk,nkl,il->n", M, A, M, A) / np.sum(A * A)
    error = samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - np.sum(second_moment(family, d=D, b=B)(A) * A) / np.sum(A * A)) < 4.5 * error


def test_gradients_match_finite_differences_of_values():
    rng = np.random.default_rng(1)
    for objective in objectives(D):
        w, v, h = rng.standard_normal((1, D)), rng.standard_normal((1, D)), 1e-5
        slope = (objective.values(w + h * v) - objective.values(w - h * v)) / (2 * h)
        assert slope[0] == pytest.approx(float((objective.gradient(w) * v).sum()), rel=1e-6, abs=1e-9)


def test_a_step_beyond_the_bound_is_reported_as_a_violation(draws):
    """The rule has teeth: a bound shrunk to a tenth fails."""
    objective = next(o for o in objectives(D) if o.name == "ridge")
    eta = 1 / ((1 + draws.alpha) * objective.problem.L)
    last = draws.by_family(run(objective, draws, eta=eta, K=1).last)[1:, 0]
    assert not sampled_row("t", "s", "gaussian", last, last.mean(1) / 10).holds
    assert sampled_row("t", "s", "gaussian", last, last.mean(1)).holds


ROW = Row("thm", "setting", "srht", 0.5, True, False, "exact")


@pytest.mark.parametrize(
    ("rows", "code"),
    [([ROW], 0), ([ROW, replace(ROW, holds=False, worst_ratio=2.0)], 1), ([replace(ROW, refuted=True)], 1)],
    ids=["all hold", "one violated", "not refuted"],
)
def test_exit_code_and_json(rows, code, monkeypatch):
    monkeypatch.setattr(suite, "verify", lambda *_, **__: iter(rows))
    result = CliRunner().invoke(command.app, ["--quick", "--json", "-"])
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert [set(line) >= {"theorem", "setting", "family", "worst_ratio", "holds", "corrected"} for line in document]
    assert len(document) == len(rows)
    table = CliRunner().invoke(command.app, ["--quick", "--worst"])
    assert table.exit_code == code
    assert "not as expected" in table.stdout


def test_function_table_as_json_and_table(tmp_path):
    result = CliRunner().invoke(command.app, ["--functions", "--json", str(tmp_path / "functions.json")])
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "functions.json").read_text(encoding="utf-8"))
    assert len(rows) == 13
    assert rows[0]["verdicts"]["semi-smooth"]["ours"] is True
