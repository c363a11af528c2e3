"""The paper's lemmas by name: they hold where they should, and each notices a break of what it speaks of."""

from dataclasses import replace

import numpy as np
import pytest

from desketch.theory.embedding import FAMILIES
from desketch.verify import lemmas
from desketch.verify.lemmas import LEMMAS, check_lemmas
from desketch.verify.objectives import objectives
from desketch.verify.places import PLACES, place
from desketch.verify.simulate import walk

from .conftest import D

NAMED = {"lem:update_rule", "lem:gtk1", "lem:gtk2", "lem:vtk", "lem:rt"}


@pytest.fixture(scope="module")
def short(draws):
    return replace(draws, R=draws.R[:, :10])


@pytest.mark.parametrize("objective", objectives(D), ids=lambda o: o.setting)
@pytest.mark.parametrize("K", [1, 5])
def test_lemmas_hold(objective, short, K):
    rows = list(check_lemmas(objective, short, K=K))
    assert {row.family for row in rows} == set(FAMILIES)
    assert [row for row in rows if not row.holds] == []
    if objective.problem.mu is not None:
        assert {row.theorem for row in rows} >= NAMED


def test_every_lemma_is_reached_and_has_a_place(short):
    found = {
        row.theorem
        for objective in objectives(D)
        if objective.heterogeneous
        for K in (1, 5)
        for row in check_lemmas(objective, replace(short, R=short.R[:, :2]), K=K)
    }
    assert found == {lemma.label for lemma in LEMMAS}
    assert {place(label) for label in found} <= set(PLACES.values())
    assert place("thm:kstep_kmr19 (sharper), shipped") == PLACES["thm:kstep_kmr19"]
    assert place("thm:of_somebody_else") == "not in the paper"


def _violated(monkeypatch, objective, draws, change, K=5):
    monkeypatch.setattr(lemmas, "walk", lambda *args, **kwargs: map(change, walk(*args, **kwargs)))
    return {row.theorem for row in check_lemmas(objective, draws, K=K) if not row.holds}


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        (lambda r: replace(r, W_next=r.W_next + 1e-6), {"lem:update_rule", "eq:rt_step1"}),
        (lambda r: replace(r, U=r.U + 1e-6 * np.arange(len(r.U))[:, None, None, None]), {"lem:update_rule"}),
        (lambda r: replace(r, G=2 * r.G), {"lem:update_rule", "lem:gtk1", "eq:rt_step1"}),
        (lambda r: replace(r, G=-r.G), {"lem:gtk2", "lem:update_rule"}),
        (lambda r: replace(r, W_next=r.W + 8 * (r.W_next - r.W)), {"lem:rt", "lem:update_rule"}),
    ],
    ids=["another w", "another u", "gradients doubled", "gradients turned", "a step too long"],
)
def test_a_broken_round_is_noticed(monkeypatch, short, change, noticed):
    objective = next(o for o in objectives(D) if o.name == "isotropic" and not o.heterogeneous)
    assert _violated(monkeypatch, objective, short, change) >= noticed


def test_clients_that_drift_too_far_are_noticed(monkeypatch, short):
    objective = next(o for o in objectives(D) if o.name == "quadratic" and o.heterogeneous)

    def apart(r):
        mean = r.U.mean(1, keepdims=True)
        return replace(r, U=mean + 10 * (r.U - mean))

    assert _violated(monkeypatch, objective, short, apart) >= {"lem:vtk", "lem:vtk (sharper)", "eq:vtk_step1"}
