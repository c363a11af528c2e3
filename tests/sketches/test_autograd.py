"""Derivatives of R: backward is the transpose, in reverse and forward mode, twice, and under torch.func."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import jacfwd, jacrev, jvp, vmap

D, B = 70, 66

# torch 2.13 itself scripts its decompositions when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def test_gradcheck_of_every_order_and_mode(sketch_of):
    R = sketch_of(7, 3)
    g = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    s = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    for call, x in ((R.sketch, g), (R.desketch, s)):
        assert gradcheck(call, x, check_forward_ad=True)
        assert gradgradcheck(lambda x, call=call: call(x).square(), x)


def test_func_transforms_see_the_matrix(sketch_of):
    R = sketch_of(D, B)
    dense = torch.from_numpy(R.to_dense())
    g = torch.linspace(-1, 1, D, dtype=torch.float64)
    torch.testing.assert_close(jacrev(R.sketch)(g), dense)
    torch.testing.assert_close(jacfwd(R.sketch)(g), dense)
    torch.testing.assert_close(jacrev(R.desketch)(g[:B]), dense.T)
    torch.testing.assert_close(jacfwd(R.desketch)(g[:B]), dense.T)
    batch = torch.from_numpy(np.random.default_rng(0).standard_normal((D, 5)))
    torch.testing.assert_close(vmap(R.sketch, in_dims=1)(batch), R.sketch(batch.T))
    primal, tangent = jvp(lambda x: R.sketch(x.sin()), (g,), (torch.ones_like(g),))
    torch.testing.assert_close(primal, dense @ g.sin())
    torch.testing.assert_close(tangent, dense @ g.cos())


def test_jacobian_of_a_batch_through_a_gradient(sketch_of):
    """What a leakage attack takes: the Jacobian over x of R times the gradient over w, for a batch of x."""
    R = sketch_of(D, B)
    w = torch.linspace(0, 1, D, dtype=torch.float64)

    def sketched_gradient(x):
        return R.sketch(torch.func.grad(lambda w: torch.tanh(w @ x).square())(w))

    xs = torch.from_numpy(np.random.default_rng(3).standard_normal((4, D))) * 0.1
    forward, reverse = vmap(jacfwd(sketched_gradient))(xs), vmap(jacrev(sketched_gradient))(xs)
    assert forward.shape == (4, B, D)
    torch.testing.assert_close(forward, reverse)


def test_desketch_add_inside_autograd(sketch_of):
    R = sketch_of(D, B)
    s = torch.ones(B, dtype=torch.float64, requires_grad=True)
    w = torch.zeros(D, dtype=torch.float64)
    R.desketch_add_(w, s, 2.0).sum().backward()
    torch.testing.assert_close(s.grad, 2 * R.sketch(torch.ones(D, dtype=torch.float64)))
