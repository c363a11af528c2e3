"""One suite over every compressor: exact sizes, strict decoding, conservation, and what each one promises."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
import torch

from desketch.baselines.chunks import ChunkedTopK
from desketch.baselines.compressor import Compressor, ErrorFeedback
from desketch.baselines.dense import Dense
from desketch.baselines.powersgd import PowerSGD
from desketch.baselines.sparse import SparseTernary, TopK, largest
from desketch.errors import InputError, WireError
from desketch.keys import Key

SHAPES = [(20, 30), (20,), (5, 4, 3, 5), (5,)]
D = sum(math.prod(shape) for shape in SHAPES)
KEY = Key(7).fold_in("test")
COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "f32": lambda: Dense(d=D, codec="f32"),
    "f16": lambda: Dense(d=D, codec="f16"),
    "int8": lambda: Dense(d=D, codec="int8"),
    "int4": lambda: Dense(d=D, codec="int4"),
    "sign1": lambda: Dense(d=D, codec="sign1"),
    "topk": lambda: TopK(d=D, k=37),
    "ternary": lambda: SparseTernary(d=D, k=37),
    "powersgd": lambda: PowerSGD(shapes=SHAPES, rank=2),
    "chunks": lambda: ChunkedTopK(d=D, share=0.04),
}


def vector(seed: int) -> torch.Tensor:
    return torch.randn(D, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=COMPRESSORS)
def compressor(request: pytest.FixtureRequest) -> Compressor:
    return COMPRESSORS[request.param]()


def test_decoding_gives_d_finite_numbers_near_the_input(compressor):
    x = vector(0)
    y = compressor.decode(compressor.encode(x, key=KEY, state={}), key=KEY)
    assert y.shape == (D,)
    assert y.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(x, y, dim=0) > 0.3


def test_encoding_is_a_function_of_input_key_and_state(compressor):
    x = vector(1)
    assert compressor.encode(x, key=KEY, state={}) == compressor.encode(x, key=KEY, state={})


def test_zero_survives(compressor):
    y = compressor.decode(compressor.encode(torch.zeros(D), key=KEY, state={}), key=KEY)
    assert not y.any()


def test_the_input_is_left_alone(compressor):
    x = vector(2)
    before = x.clone()
    ErrorFeedback(compressor).encode(x, key=KEY, state={})
    assert torch.equal(x, before)


@pytest.mark.parametrize("cut", [0, 1, 3, -1])
def test_truncated_payloads_are_refused(compressor, cut):
    payload = compressor.encode(vector(3), key=KEY, state={})
    with pytest.raises(WireError):
        compressor.decode(payload[:cut], key=KEY)


def test_longer_payloads_are_refused(compressor):
    payload = compressor.encode(vector(3), key=KEY, state={})
    with pytest.raises(WireError):
        compressor.decode(payload + b"\0\0", key=KEY)


def test_error_feedback_conserves_mass(compressor):
    """All that was decoded plus the residual is all that was encoded."""
    feedback, state = ErrorFeedback(compressor), {}
    asked, sent = torch.zeros(D), torch.zeros(D)
    for t in range(6):
        x, key = vector(10 + t), KEY.fold_in(t)
        asked += x
        sent += feedback.decode(feedback.encode(x, key=key, state=state), key=key)
    torch.testing.assert_close(sent + state["error"], asked, rtol=0, atol=1e-4)


def test_a_residual_that_fades():
    """e <- decay e + x - C(decay e + x)."""
    feedback, state = ErrorFeedback(COMPRESSORS["topk"](), decay=0.5), {}
    feedback.encode(vector(1), key=KEY, state=state)
    left = state["error"].clone()
    second = feedback.encode(vector(2), key=KEY, state=state)
    assert second == COMPRESSORS["topk"]().encode(vector(2) + 0.5 * left, key=KEY, state={})
    torch.testing.assert_close(state["error"], vector(2) + 0.5 * left - feedback.decode(second, key=KEY))


@pytest.mark.parametrize("decay", [-0.1, 1.1])
def test_an_impossible_decay_is_refused(decay):
    with pytest.raises(InputError, match="decay"):
        ErrorFeedback(COMPRESSORS["topk"](), decay=decay)


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(InputError, match="share"):
        ChunkedTopK(d=D, share=share)


@pytest.mark.parametrize("name", ["topk", "ternary", "powersgd", "chunks"])
def test_biased_compressors_are_contractions(name):
    """|x - C(x)|² < |x|²: what makes error feedback converge."""
    compressor = COMPRESSORS[name]()
    for seed in range(5):
        x = vector(20 + seed)
        y = compressor.decode(compressor.encode(x, key=KEY, state={}), key=KEY)
        assert (x - y).square().sum() < x.square().sum()


@pytest.mark.parametrize("name", ["int8", "int4", "sign1"])
def test_random_codecs_are_unbiased_over_keys(name):
    compressor, x, n = COMPRESSORS[name](), vector(30), 400
    decoded = torch.stack(
        [compressor.decode(compressor.encode(x, key=(k := KEY.fold_in(i)), state={}), key=k) for i in range(n)]
    )
    projection = decoded @ (x / x.norm())  # one number per key: its mean must be |x|
    direction = decoded @ (other := torch.roll(x, 1) / x.norm())
    for got, expected in ((projection, x.norm()), (direction, x @ other)):
        error = got.mean() - expected
        assert error.abs() < 4.5 * got.std() / n**0.5 + 1e-4 * x.norm()


def test_topk_keeps_the_largest_and_ternary_their_mean():
    x = vector(40)
    index = largest(x, 37)
    top = TopK(d=D, k=37)
    y = top.decode(top.encode(x, key=KEY, state={}), key=KEY)
    assert torch.equal(y.nonzero().flatten(), index)
    torch.testing.assert_close(y[index], x[index], rtol=2e-3, atol=0)
    ternary = SparseTernary(d=D, k=37)
    z = ternary.decode(ternary.encode(x, key=KEY, state={}), key=KEY)
    torch.testing.assert_close(z[index], x[index].sign() * x[index].abs().mean())
    assert z.count_nonzero() == 37


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["topk", "ternary", "sign1"])
def test_bad_scales_are_refused(name, scale):
    compressor = COMPRESSORS[name]()
    payload = compressor.encode(vector(3), key=KEY, state={})
    with pytest.raises(WireError, match="scale"):
        compressor.decode(struct.pack("<f", scale) + payload[4:], key=KEY)


@pytest.mark.parametrize("k", [0, D + 1])
def test_impossible_sparsity_is_refused(k):
    with pytest.raises(InputError, match="k must"):
        SparseTernary(d=D, k=k)


def test_a_low_rank_matrix_is_sent_exactly_from_the_second_round():
    g = torch.Generator().manual_seed(0)
    compressor = PowerSGD(shapes=[(40, 30)], rank=2)
    x = (torch.randn(40, 2, generator=g) @ torch.randn(2, 30, generator=g)).reshape(-1)
    y = compressor.decode(compressor.encode(x, key=KEY, state={}), key=KEY)
    torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5)


def test_the_warm_start_approaches_the_best_rank_r():
    """Power iteration on a fixed matrix converges to its truncated SVD (oracle: torch.linalg.svd)."""
    M = vector(50)[:600].view(20, 30)
    compressor, state = PowerSGD(shapes=[(20, 30)], rank=2), {}
    errors = []
    for _ in range(60):
        y = compressor.decode(compressor.encode(M.reshape(-1), key=KEY, state=state), key=KEY)
        errors.append(float((M.reshape(-1) - y).square().sum()))
    best = float(torch.linalg.svdvals(M)[2:].square().sum())
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.01 * best


def test_small_and_one_dimensional_parameters_travel_dense():
    compressor = PowerSGD(shapes=[(3, 3), (7,)], rank=2)  # 2 (3 + 3) > 9: factors would be larger
    x = vector(60)[:16]
    payload = compressor.encode(x, key=KEY, state={})
    assert len(payload) == 4 * 16
    assert torch.equal(compressor.decode(payload, key=KEY), x)


def test_a_rank_below_one_is_refused():
    with pytest.raises(InputError, match="rank"):
        PowerSGD(shapes=SHAPES, rank=0)


def test_a_low_rank_payload_that_is_not_finite_is_refused():
    compressor = COMPRESSORS["powersgd"]()
    payload = compressor.encode(vector(3), key=KEY, state={})
    with pytest.raises(WireError, match="finite"):
        compressor.decode(struct.pack("<f", math.nan) + payload[4:], key=KEY)
