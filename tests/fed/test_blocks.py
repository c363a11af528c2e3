"""What works in place and in blocks gives the same bits as the plain formulas on whole vectors."""

from __future__ import annotations

from math import exp, sqrt

import pytest
import torch
from torch import Tensor

from desketch.core.vectors import BLOCK, dot, largest, lengths, norm
from desketch.fed import Update, make_optimizer
from desketch.fed.auto_step import AutoStep, round16

D = 2 * BLOCK + 17


def plain_momentum(w: Tensor, updates: list[Update], beta: float) -> Tensor:
    """The automatic step and momentum as the module's docstrings have them, with copies of everything."""
    m = s = None
    eta, bound = 0.0, float("inf")
    for t, update in enumerate(updates, start=1):
        u, b = update.vector, update.b
        if m is None:
            eta = round16(min(max(norm(w) / update.norm, 1.0), 16.0) * sqrt(b / D))
            bound = AutoStep.reach * norm(w)
        else:
            rho = sqrt(D / b) * float(torch.dot(u.double(), s.double())) / (update.norm * norm(s))
            eta = round16(eta * exp(AutoStep.kappa / (1 + D / b**2) * min(max(rho, -2.0), 1.0)))
        if update.norm > bound:
            u = u * round16(bound / update.norm)
        m = u * (1 - beta) if m is None else m * beta + u * (1 - beta)
        s = m / round16(1 - beta**t) * eta
        w = w + s
    return w


def test_momentum_with_the_automatic_step_is_the_plain_formula_bit_for_bit() -> None:
    g = torch.Generator().manual_seed(1)
    w = torch.randn(D, generator=g)
    updates = [Update(torch.randn(D, generator=g) * size, 30.0 * size, 900) for size in (3.0, 9.0, 1.0, 0.5, 0.5, 0.2)]
    expected = plain_momentum(w.clone(), updates, 0.5)
    optimizer = make_optimizer("momentum")
    for update in updates:
        before = update.vector.clone()
        optimizer.apply(w, update)
        assert torch.equal(update.vector, before)  # the caller's own
    assert torch.equal(w, expected)
    assert set(optimizer.tensors) == {"m"}  # the last step follows from it


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam", "amsgrad"])
@pytest.mark.parametrize("eta_global", ["auto", 0.3])
def test_blocks_do_not_matter(name: str, eta_global: object, monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(2)
    w0, us = torch.randn(1000, generator=g), [torch.randn(1000, generator=g) for _ in range(5)]

    def run() -> Tensor:
        optimizer, w = make_optimizer(name, eta_global=eta_global), w0.clone()  # type: ignore[arg-type]
        for u in us:
            optimizer.apply(w, Update(u, float(u.norm()) / 4, 60))
        return w

    whole = run()
    monkeypatch.setattr("desketch.fed.optimizers.BLOCK", 64)
    assert torch.equal(run(), whole)


def test_sums_are_those_of_float64() -> None:
    g = torch.Generator().manual_seed(3)
    u, v = torch.randn(2, D, generator=g)
    assert norm(u) == pytest.approx(float(u.double().norm()), rel=1e-12)
    assert dot(u, v) == pytest.approx(float(u.double() @ v.double()), rel=1e-9)
    assert largest(u) == float(u.abs().max())
    u[5] = float("nan")
    assert norm(u) != norm(u)
    assert largest(u) != largest(u)


@pytest.mark.parametrize("d", [100, D])
def test_lengths_of_rows_tell_what_is_not_finite(d: int) -> None:
    rows = torch.randn(4, d, generator=torch.Generator().manual_seed(2))
    rows[1, 7], rows[2, -1], rows[3] = torch.nan, torch.inf, 0.0
    first, second, third, last = lengths(rows)
    assert first == pytest.approx(norm(rows[0]), rel=1e-5)
    assert second != second
    assert (third, last) == (float("inf"), 0.0)
