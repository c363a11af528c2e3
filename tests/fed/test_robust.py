"""Robust rules: what they promise, against plain NumPy, under permutations, rotations and liars of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from desketch.errors import ConfigError
from desketch.fed.robust import (
    RULES,
    CentredClip,
    GeometricMedian,
    Krum,
    Mean,
    NormBound,
    Rule,
    TrimmedMean,
    bounded_mean,
    check_cohort,
    clip_to,
    lower_median,
    parse_rule,
    rule_of,
    weighted_mean,
)
from desketch.wire.rows import Decoded

N, B, F = 12, 30, 3
SOUND = [GeometricMedian(), Krum(num_malicious_nodes=F), CentredClip(), TrimmedMean(beta=0.25)]
EQUIVARIANT = [Mean(), NormBound(), GeometricMedian(), Krum(num_malicious_nodes=F), CentredClip(), CentredClip(tau=0.5)]
EVERY = [*EQUIVARIANT, TrimmedMean(beta=0.25)]


def case(seed: int, *, spread: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=B) + spread * rng.normal(size=(N, B))
    return torch.tensor(rows), torch.tensor(rng.uniform(1, 9, N))


def rotation(seed: int) -> torch.Tensor:
    return torch.linalg.qr(torch.tensor(np.random.default_rng(seed).normal(size=(B, B)))).Q


def name(rule: object) -> str:
    return rule.spec if isinstance(rule, Rule) else str(rule)


@pytest.mark.parametrize("rule", EVERY, ids=name)
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_clients_changes_nothing(rule: Rule, seed: int) -> None:
    rows, weights = case(seed)
    order = torch.tensor(np.random.default_rng(seed + 9).permutation(N))
    torch.testing.assert_close(rule.combine(rows[order], weights[order]), rule.combine(rows, weights))


@pytest.mark.parametrize("rule", EVERY, ids=name)
def test_who_agrees_gets_the_mean(rule: Rule) -> None:
    row = case(0)[0][0]
    torch.testing.assert_close(rule.combine(row.expand(N, B), case(0)[1]), row)


@pytest.mark.parametrize("rule", EQUIVARIANT, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_rules_of_norms_and_distances_commute_with_rotations(rule: Rule, seed: int) -> None:
    rows, weights = case(seed)
    Q = rotation(seed)
    torch.testing.assert_close(rule.combine(rows @ Q, weights), rule.combine(rows, weights) @ Q)


def test_the_trimmed_mean_does_not() -> None:
    rows, weights = case(0, spread=3.0)
    Q, rule = rotation(0), TrimmedMean(beta=0.25)
    assert float((rule.combine(rows @ Q, weights) - rule.combine(rows, weights) @ Q).norm()) > 0.1


@pytest.mark.parametrize("rule", SOUND, ids=name)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e12, 1e30])
@pytest.mark.parametrize("seed", range(4))
def test_a_quarter_of_liars_of_any_size_stays_near_the_honest_mean(rule: Rule, size: float, seed: int) -> None:
    """Within twice the honest radius: the mean itself would be size/4 away."""
    rows, _ = case(seed)
    liars = torch.tensor(np.random.default_rng(seed).normal(size=B))
    rows[:F] = size * liars * (1 if seed % 2 else -1)
    honest = rows[F:]
    radius = float((honest - honest.mean(0)).norm(dim=1).max())
    assert float((rule.combine(rows, torch.ones(N).double()) - honest.mean(0)).norm()) <= 2 * radius


def test_the_mean_has_no_such_bound() -> None:
    rows, weights = case(1)
    rows[0] *= 1e6
    assert float(Mean().combine(rows, weights).norm()) > 1e4


def numpy_geometric_median(rows: np.ndarray, weights: np.ndarray, nu: float, steps: int) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1)
    middle = np.sort(norms)[(len(norms) - 1) // 2]
    v = np.average(rows * np.minimum(1, middle / norms)[:, None], axis=0, weights=weights)
    for _ in range(steps):
        v = np.average(rows, axis=0, weights=weights / np.maximum(nu, np.linalg.norm(rows - v, axis=1)))
    return v


def numpy_krum(rows: np.ndarray, f: int, m: int) -> list[int]:
    """Blanchard et al., as Flower's `select_multikrum` counts."""
    squares = np.square(rows[:, None] - rows[None]).sum(2)
    scores = [np.sort(line)[1 : len(rows) - f - 1].sum() for line in squares]
    return sorted(np.argsort(scores, kind="stable")[:m].tolist())


def numpy_centred(rows: np.ndarray, weights: np.ndarray, tau: float, steps: int) -> np.ndarray:
    v = numpy_geometric_median(rows, weights, 1.0, 0)
    for _ in range(steps):
        away = rows - v
        v = v + np.average(away * np.minimum(1, tau / np.linalg.norm(away, axis=1))[:, None], axis=0, weights=weights)
    return v


@pytest.mark.parametrize("seed", range(4))
def test_rules_are_what_plain_numpy_computes(seed: int) -> None:
    rows, weights = case(seed)
    x, p = rows.numpy(), weights.numpy()

    def same(rule: Rule, oracle: np.ndarray) -> None:
        np.testing.assert_allclose(rule.combine(rows, weights).numpy(), oracle, rtol=1e-9, atol=1e-12)

    chosen = numpy_krum(x, F, 5)
    assert Krum(num_malicious_nodes=F, num_nodes_to_select=5).kept(rows) == chosen
    assert Krum(num_malicious_nodes=F).kept(rows) == numpy_krum(x, F, N - F)
    same(Mean(), np.average(x, axis=0, weights=p))
    same(GeometricMedian(iterations=5), numpy_geometric_median(x, p, 1e-6, 5))
    same(Krum(num_malicious_nodes=F, num_nodes_to_select=5), np.average(x[chosen], axis=0, weights=p[chosen]))
    same(CentredClip(tau=0.7, iterations=3), numpy_centred(x, p, 0.7, 3))
    same(TrimmedMean(beta=0.25), np.sort(x, axis=0)[3:-3].mean(0))


def test_weiszfeld_reaches_the_geometric_median() -> None:
    """At the optimum the unit vectors towards all rows balance."""
    rows, weights = case(3)
    v = GeometricMedian(iterations=200).combine(rows, weights)
    away = rows - v
    pull = (weights[:, None] * away / away.norm(dim=1, keepdim=True)).sum(0)
    assert float(pull.norm()) < 1e-6 * float(weights.sum())


def test_krum_is_flower_s() -> None:
    flower = pytest.importorskip("flwr.serverapp.strategy.multikrum")
    app = pytest.importorskip("flwr.app")
    rows, _ = case(5)
    contents = [app.RecordDict({"arrays": app.ArrayRecord([row.numpy()])}) for row in rows]
    chosen = flower.select_multikrum(contents, num_malicious_nodes=F, num_nodes_to_select=4)
    places = [next(i for i, content in enumerate(contents) if content is one) for one in chosen]
    assert Krum(num_malicious_nodes=F, num_nodes_to_select=4).kept(rows) == sorted(places)


def test_clipping_keeps_every_bit_of_what_is_short_enough() -> None:
    rows = case(0)[0]
    norms = rows.norm(dim=1)
    clipped = clip_to(rows, float(norms.median()))
    short = norms <= norms.median()
    assert torch.equal(clipped[short], rows[short])
    torch.testing.assert_close(clipped[~short].norm(dim=1), norms.median().expand(int((~short).sum())))
    assert lower_median(torch.tensor([4.0, 1.0])) == 1.0


@pytest.mark.parametrize("rule", EVERY, ids=name)
def test_a_rule_is_its_text(rule: Rule) -> None:
    assert parse_rule(rule.spec) == rule


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("median", "expected one of none, norm-bound"),
        ("krum", "needs 'num_malicious_nodes'"),
        ("krum:num_malicious_nodes=x", "a whole number, got 'x'"),
        ("krum:num_malicious_nodes=-1", "counts clients"),
        ("rfa:mu=1", "takes nu, iterations"),
        ("rfa:nu=nan", "a number, got 'nan'"),
        ("rfa:iterations=0", "at least 1"),
        ("trimmed-mean:beta=0.5", r"in \[0, 0.5\)"),
        ("norm-bound:factor=0.5", "at least 1"),
        ("centred-clip:tau=0", "above 0"),
        ("none:x=1", "takes nothing"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_rule(text)


def test_defaults_and_refusals() -> None:
    assert set(RULES) == {"none", "norm-bound", "rfa", "krum", "centred-clip", "trimmed-mean"}
    assert parse_rule(None) == NormBound()
    assert rule_of(None, private_mean=True) == Mean()
    with pytest.raises(ConfigError, match="client-level privacy"):
        rule_of("norm-bound", private_mean=True)
    with pytest.raises(ConfigError, match="needs 15 updates in a round, 10"):
        check_cohort(Krum(num_malicious_nodes=6), clients=20, fraction=0.5)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_a_mean_taken_a_few_rows_at_a_time_is_the_mean(n, monkeypatch):
    monkeypatch.setattr("desketch.wire.rows._CACHED", 8 * 8 * B)  # eight rows
    rng = torch.Generator().manual_seed(n)
    rows, weights = torch.randn(n, B, generator=rng), torch.rand(n, generator=rng)
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    for radius in (float(norms.median()), float("inf")):
        expected = weighted_mean(clip_to(rows.double(), radius), weights)
        mean = bounded_mean(Decoded(rows.numpy()), weights, norms, radius)
        torch.testing.assert_close(mean, expected, rtol=0, atol=1e-15)
