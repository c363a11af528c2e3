"""Server optimisers against torch.optim, and the automatic step's invariants."""

from __future__ import annotations

from math import exp, sqrt

import pytest
import torch

from desketch.errors import InputError
from desketch.fed import OPTIMIZERS, Update, make_optimizer
from desketch.fed.auto_step import AutoStep


def _updates(n: int = 8, d: int = 50) -> list[Update]:
    g = torch.Generator().manual_seed(4)
    return [Update(torch.randn(d, generator=g), 1.0, d) for _ in range(n)]


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov"])
def test_constant_updates_move_w_by_eta_each(name: str) -> None:
    w, u = torch.zeros(5), torch.arange(5.0)
    optimizer = make_optimizer(name, eta_global=0.5)
    for _ in range(7):
        optimizer.apply(w, Update(u.clone(), 1.0, 5))
    torch.testing.assert_close(w, 3.5 * u)


def test_momentum_is_torch_s_without_the_warm_up() -> None:
    w, reference = torch.zeros(50), torch.zeros(50, requires_grad=True)
    ours = make_optimizer("momentum", eta_global=1.0)
    theirs = torch.optim.SGD([reference], lr=0.1, momentum=0.9)
    steps = []
    for t, update in enumerate(_updates(), start=1):
        before = w.clone()
        ours.apply(w, update)
        reference.grad = -update.vector
        old = reference.detach().clone()
        theirs.step()
        steps.append(((w - before) * (1 - 0.9**t), reference.detach() - old))
    for mine, expected in steps:
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_is_torch_s(amsgrad: bool) -> None:
    updates = _updates()
    floor = 1e-3 * float(updates[0].vector.norm()) / sqrt(50)
    w, reference = torch.zeros(50), torch.zeros(50, requires_grad=True)
    ours = make_optimizer("amsgrad" if amsgrad else "adam", eta_global=0.1)
    theirs = torch.optim.Adam([reference], lr=0.1, betas=(0.9, 0.99), eps=floor)
    for update in updates[: 1 if amsgrad else None]:  # torch takes the maximum before its bias correction
        ours.apply(w, update)
        reference.grad = -update.vector
        theirs.step()
    torch.testing.assert_close(w, reference.detach(), rtol=1e-4, atol=1e-6)


def test_amsgrad_never_forgets_a_large_update() -> None:
    optimizer = make_optimizer("amsgrad", eta_global=0.1)
    adam = make_optimizer("adam", eta_global=0.1)
    w, v = torch.zeros(1), torch.zeros(1)
    for size in (100.0, *[1.0] * 300):
        before, before_adam = w.clone(), v.clone()
        optimizer.apply(w, Update(torch.tensor([size]), size, 1))
        adam.apply(v, Update(torch.tensor([size]), size, 1))
    assert (w - before) < 0.2 * (v - before_adam)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("eta_global", ["auto", 0.2])
def test_a_restored_optimizer_takes_the_same_steps(name: str, eta_global: object) -> None:
    updates = _updates()
    a, b = (make_optimizer(name, eta_global=eta_global) for _ in range(2))  # type: ignore[arg-type]
    w = torch.ones(50)
    for update in updates[:4]:
        a.apply(w, update)
    v = w.clone()
    b.load_state_dict(a.state_dict())
    for update in updates[4:]:
        a.apply(w, update)
        b.apply(v, update)
    assert torch.equal(w, v)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_first_automatic_step_is_as_long_as_the_sketch(name: str) -> None:
    d, b = 4000, 100
    u = torch.randn(d, generator=torch.Generator().manual_seed(1))
    y_norm = float(u.norm()) * sqrt(b / d)
    w = torch.zeros(d)
    make_optimizer(name).apply(w, Update(u, y_norm, b))
    assert float(w.norm()) == pytest.approx(y_norm, rel=1e-3)


def test_the_automatic_step_grows_along_a_line_and_shrinks_on_reversal() -> None:
    u = torch.ones(100)
    straight, zigzag = make_optimizer("sgd"), make_optimizer("sgd")
    w, v = torch.zeros(100), torch.zeros(100)
    for t in range(10):
        straight.apply(w, Update(u, 10.0, 100))
        zigzag.apply(v, Update(u * (-1) ** t, 10.0, 100))
    growth = 9 * AutoStep.kappa / (1 + 100 / 100**2)
    assert straight.eta == pytest.approx(exp(growth), rel=1e-3)
    assert zigzag.eta == pytest.approx(exp(-growth), rel=1e-3)


def test_told_of_raw_updates_the_step_is_held_where_they_point_back_a_little() -> None:
    """Steady at rho = -past, longer above it, shorter below; a broadcast of nothing teaches nothing."""
    ratios = {}
    for rho in (-0.3, -AutoStep.past, 0.0, 5.0):
        optimizer, w = make_optimizer("sgd"), torch.zeros(100)
        for _ in range(9):
            optimizer.apply(w, Update(torch.ones(100), 10.0, 100, rho * 10.0))
        optimizer.apply(w, Update(torch.zeros(100), 0.0, 100, 0.0))
        ratios[rho] = optimizer.eta
    expected = {rho: exp(8 * AutoStep.kappa * (min(rho, 1.0) + AutoStep.past)) for rho in ratios}
    assert ratios == pytest.approx(expected, rel=1e-3)
    assert ratios[-AutoStep.past] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("w0", "longer"), [(0.1, 1.0), (3.0, 3.0), (100.0, AutoStep.longest_start)])
def test_the_first_automatic_step_is_as_long_as_w0_within_limits(w0: float, longer: float) -> None:
    """|w0| is given in units of |y|; the bound c = |w0| / 4 shortens the step of small ones."""
    d, b, y = 400, 100, 1 / 40
    w = torch.full((d,), w0 * y / sqrt(d))
    before = w.clone()
    u = torch.ones(d) * y * sqrt(d / b) / sqrt(d)
    make_optimizer("sgd").apply(w, Update(u, y, b))
    bounded = min(1.0, AutoStep.reach * w0)
    assert float((w - before).norm()) == pytest.approx(longer * bounded * y, rel=1e-3)


def test_wrong_arguments_are_named() -> None:
    for arguments in ({"name": "lion"}, {"eta_global": -1.0}, {"eta_global": "fast"}, {"beta": 1.0}):
        with pytest.raises(InputError):
            make_optimizer(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="build the same"):
        make_optimizer("sgd").load_state_dict(make_optimizer("adam").state_dict())
