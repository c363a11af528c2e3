"""Codecs: one conformance suite over all of them, then what is special to each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire import (
    CODEC_TABLE,
    FAMILY_CODES,
    Header,
    decode,
    decode_batch,
    encode,
    encode_batch,
    frame_size,
    pack,
    rotation,
    unpack,
)
from desketch.wire.codecs import SALTS
from desketch.wire.rotation import rotate, rotate_back

ROUNDING = Key(99)
SIZES = (1, 2, 3, 7, 8, 9, 255, 256, 257, 700, 1024)
# worst |decoded - value|: relative to the largest value of a message
TOLERANCE = {"f32": 0.0, "f16": 2.0**-10, "int8": 1.02 / 127, "int4": 1.02 / 7}
ROTATED = tuple(name for name in CODEC_TABLE if name not in TOLERANCE)
OMEGA = {"sign1": np.pi / 2 - 1, "trellis1": 0.40, "trellis2": 1.17, "trellis3": 1.97}  # of Gaussian vectors


def sample(n, b, seed=0):
    return np.random.default_rng(seed).standard_normal((n, b)).astype(np.float32)


def keys(n, t=0):
    return [ROUNDING.fold_in(t, c) for c in range(n)]


@pytest.mark.parametrize("b", SIZES)
def test_round_trip_size_and_error(codec, make_header, b):
    header = make_header(codec=codec, b=b)
    x = sample(1, b)[0]
    frame = encode(x, header, rounding=ROUNDING)
    assert len(frame) == frame_size(header)
    got, y = decode(frame, header)
    assert got == header
    assert y.dtype == np.float32
    if codec in TOLERANCE:
        assert np.abs(x - y).max() <= TOLERANCE[codec] * np.abs(x).max()


@pytest.mark.parametrize("family", ["srht", "countsketch", "none"])
def test_batches_equal_single_messages_bit_for_bit(codec, make_header, family):
    header = make_header(codec=codec, family=family)
    x, weights = sample(6, header.b), [1.0, 2.0, 72.0, 0.1, 1e4, 3.0]
    frames = encode_batch(x, header, weights=weights, rounding=keys(6))
    for row, weight, key, frame in zip(x, weights, keys(6), frames, strict=True):
        assert frame == encode(row, replace(header, weight=weight), rounding=key)
    batch = decode_batch(dict(enumerate(frames)), header)
    assert batch.senders == tuple(range(6))
    np.testing.assert_array_equal(batch.weights.astype(np.float32), np.float32(weights))
    for frame, row in zip(frames, batch.values, strict=True):
        np.testing.assert_array_equal(decode(frame, header)[1], row)


def test_torch_and_numpy_encode_alike(codec, make_header):
    header, x = make_header(codec=codec), sample(2, 700)
    tensor = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    assert encode_batch(tensor, header, rounding=keys(2)) == encode_batch(x, header, rounding=keys(2))
    assert encode(tensor[0], header, rounding=ROUNDING) == encode(x[0], header, rounding=ROUNDING)


@settings(max_examples=60)
@given(data=st.data(), family=st.sampled_from(["srht", "ams"]), name=st.sampled_from(sorted(CODEC_TABLE)))
def test_any_finite_vector_survives_or_is_refused(data, family, name):
    b = data.draw(st.integers(1, 600))
    x = data.draw(
        hnp.arrays(np.float32, b, elements=st.floats(-(2.0**119), 2.0**119, width=32), fill=st.just(np.float32(0)))
    )
    header = Header(run=1, round=1, family=family, d=10**4, b=b, key=Key(5), codec=name)
    _, y = decode(encode(x, header, rounding=ROUNDING), header)
    assert np.isfinite(y).all()
    if name in TOLERANCE:
        bound = np.abs(x).max() * np.float64(TOLERANCE[name]) + (2.0**-133 if name != "f32" else 0)
        assert np.abs(x.astype(np.float64) - y).max() <= bound


@pytest.mark.parametrize("name", ["f32", "f16", "int8", "int4"])
@pytest.mark.parametrize("value", [-3.4028235e38, 3.3987e38, 3.39e38, 2.0**127])
def test_the_largest_numbers_are_not_refused_by_their_receiver(make_header, name, value):
    """Their scale, rounded up, would promise numbers beyond float32."""
    x = np.float32([1.0, value, -1e-40])
    y = decode(encode(x, make_header(codec=name, b=3), rounding=ROUNDING), make_header(codec=name, b=3))[1]
    assert np.abs(x.astype(np.float64) - y).max() <= TOLERANCE[name] * abs(value)


@settings(max_examples=150)
@given(data=st.data(), name=st.sampled_from(sorted(CODEC_TABLE)), b=st.integers(1, 300))
def test_any_payload_decodes_to_finite_numbers_or_is_refused(data, name, b):
    header = Header(run=1, round=1, family="ams", d=10**4, b=b, key=Key(5), codec=name)
    size = CODEC_TABLE[name].size(b)
    payload = np.random.default_rng(data.draw(st.integers(0, 2**32))).bytes(size)
    batch = decode_batch({0: pack(header, payload)}, header)
    assert np.isfinite(batch.values).all()
    assert all(reason.startswith(("scale: ", "payload: ")) for reason in batch.refused.values())


def test_zero_stays_zero(codec, make_header):
    for family in ("srht", "gaussian"):
        header = make_header(codec=codec, family=family)
        assert not decode(encode(np.zeros(700), header, rounding=ROUNDING), header)[1].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_non_finite_values_are_refused_and_named(codec, make_header, bad):
    x = sample(3, 700).astype(np.float64)
    x[1, 5] = bad
    with pytest.raises(WireError, match=r"^values: rows \[1\]"):
        encode_batch(x, make_header(codec=codec), rounding=keys(3))


def test_bad_frames_are_refused_and_the_others_go_on(codec, make_header):
    header = make_header(codec=codec)
    frames = dict(enumerate(encode_batch(sample(5, 700), header, rounding=keys(5))))
    nan_scale = bytearray(unpack(frames[3], header)[1])
    nan_scale[:4] = b"\xff\xff\xff\xff"
    good = decode_batch(frames, header).values
    frames[0] = frames[0][:-1]
    frames[3] = pack(header, bytes(nan_scale))
    frames[4] = encode(np.zeros(700), replace(header, round=2), rounding=ROUNDING)
    batch = decode_batch(frames, header)
    assert batch.senders == (1, 2)
    np.testing.assert_array_equal(batch.values, good[1:3])
    assert {c: reason.split(":")[0] for c, reason in batch.refused.items()} == {
        0: "payload length",
        3: "payload" if codec.startswith("f") else "scale",
        4: "round",
    }
    empty = decode_batch({7: b""}, header)
    assert empty.senders == ()
    assert empty.values.shape == (0, 700)


@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.3, -0.011, 1.0, 0.4999])
def test_stochastic_rounding_is_unbiased(make_header, name, value):
    header, n = make_header(codec=name, b=512), 400
    x = np.full((n, 512), value, dtype=np.float32)
    x[:, ::256] = 1.7  # sets the scale of both blocks
    batch = decode_batch(dict(enumerate(encode_batch(x, header, rounding=keys(n)))), header)
    y = np.delete(batch.values, [0, 256], axis=1).astype(np.float64)
    std = max(y.std(), 1e-9)
    assert abs(y.mean() - np.float64(np.float32(value))) <= 4.5 * std / np.sqrt(y.size) + 2e-7


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 1e9, 1e30])
def test_no_codec_depends_on_the_scale_of_a_vector(codec, make_header, scale):
    """Vectors of tiny or huge numbers lose no more than those of order one."""
    header, x = make_header(codec=codec), sample(40, 700)

    def error(factor):
        frames = encode_batch(x * np.float32(factor), header, rounding=keys(40))
        y = decode_batch(dict(enumerate(frames)), header).values.astype(np.float64) / factor
        return np.linalg.norm(y - x) / np.linalg.norm(x)

    assert error(scale) <= 1.1 * error(1.0) + 1e-6


@pytest.mark.parametrize("name", ROTATED)
def test_the_error_is_that_of_gaussian_vectors(name):
    """For signs |s - decoded|²/|s|² tends to pi/2 - 1; a spike, the worst input, comes close, whatever the code."""
    b = 4096
    spike = np.zeros((50, b), dtype=np.float32)
    spike[:, 17] = 1.0
    header = Header(run=1, round=1, family="none", d=b, b=b, key=Key(1), codec=name)
    y = decode_batch(dict(enumerate(encode_batch(spike, header, rounding=keys(50)))), header).values
    assert np.square(spike - y).sum(axis=1).mean() == pytest.approx(OMEGA[name], rel=0.04)


@pytest.mark.parametrize("name", ROTATED)
def test_the_component_along_the_vector_is_kept(name):
    """By construction of the scale <s, decoded> = |s|², up to what the salt takes from it, or in the mean."""
    header = Header(run=1, round=1, family="srht", d=4000, b=300, key=Key(1), codec=name)
    x = sample(400, 300)
    y = decode_batch(dict(enumerate(encode_batch(x, header, rounding=keys(400)))), header).values
    along = (x.astype(np.float64) * y).sum(axis=1) / np.square(x.astype(np.float64)).sum(axis=1)
    if name == "sign1":
        np.testing.assert_allclose(along, 1.0, atol=2.0**-12 + 1e-5)
    assert np.abs(along - 1).max() < 2**0.25 - 1
    assert along.mean() == pytest.approx(1.0, abs=4 * along.std() / 20 + 1e-4)


@pytest.mark.parametrize("name", ROTATED)
def test_errors_of_senders_and_of_the_broadcast_are_independent(name):
    """Equal vectors of 64 clients: the error of the mean falls as 1/64, and the broadcast adds its own to it.

    Clients that share one of few rotations share its error.
    """
    b, n = 512, 64
    x = sample(1, b)
    up = Header(run=1, round=1, family="srht", d=4000, b=b, key=Key(1), codec=name)
    y = decode_batch(dict(enumerate(encode_batch(np.repeat(x, n, 0), up, rounding=keys(n)))), up).values.mean(axis=0)
    omega, size = OMEGA[name], np.square(x).sum()
    shared = np.bincount([CODEC_TABLE[name].chosen_salt(key) for key in keys(n)])
    assert np.square(y - x[0]).sum() / size == pytest.approx(omega * np.square(shared / n).sum(), rel=0.3)
    down = replace(up, kind="broadcast")
    z = decode_batch(dict(enumerate(encode_batch(np.repeat(y[None], n, 0), down, rounding=keys(n, 1)))), down).values
    assert np.square(z - x[0]).sum(axis=1).mean() / size == pytest.approx(omega, rel=0.15)


def test_salt_rides_in_the_scale(make_header):
    header, x = make_header(codec="sign1"), sample(3, 700)
    for row, key in zip(x, keys(3), strict=True):
        payload = unpack(encode(row, header, rounding=key), header)[1]
        scale = np.frombuffer(payload[:4], "<f4")
        assert scale.view("<u4")[0] % SALTS == int.from_bytes(key.bits[:2], "little") % SALTS
    assert bytes(unpack(encode(0 * x[0], header, rounding=ROUNDING), header)[1][:4]) == bytes(4)
    huge = np.full(700, np.float32(3e38) / np.float32(27))
    assert np.isfinite(decode(encode(huge, header, rounding=ROUNDING), header)[1]).all()


@pytest.mark.parametrize("b", SIZES)
def test_rotation_is_orthogonal_and_exact_on_signs(b):
    x, salts = sample(3, b), [0, 7, SALTS - 1]
    key = Key(8)
    np.testing.assert_allclose(rotate_back(rotate(x, key, salts), key, salts), x, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(rotate(x, key, salts), axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    signs = np.sign(x)
    exact = rotate_back(signs.astype(np.float64), key, salts)
    np.testing.assert_array_equal(rotate_back(signs, key, salts), exact.astype(np.float32))
    np.testing.assert_array_equal(exact * 4096, np.round(exact * 4096))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "_CHUNK", 1)
        np.testing.assert_array_equal(
            rotate(x, key, salts), np.vstack([rotate(x[i : i + 1], key, salts[i : i + 1]) for i in range(3)])
        )


def test_stochastic_codecs_need_a_key_and_shapes_must_agree(make_header):
    header = make_header(codec="int4")
    with pytest.raises(InputError, match="rounds at random"):
        encode(np.zeros(700), header)
    with pytest.raises(InputError, match="one entry per row"):
        encode_batch(np.zeros((2, 700)), header, rounding=keys(3))
    with pytest.raises(InputError, match="shape"):
        encode(np.zeros(699), header, rounding=ROUNDING)
    with pytest.raises(InputError, match="pack and unpack"):
        encode(np.zeros(700), make_header(codec="opaque"))
    assert encode_batch(np.zeros((0, 700)), header, rounding=[]) == []


def test_every_family_can_use_every_codec(codec):
    for family in FAMILY_CODES:
        header = Header(run=1, round=1, family=family, d=100, b=40, key=Key(5), codec=codec)
        assert decode(encode(sample(1, 40)[0], header, rounding=ROUNDING), header)[1].shape == (40,)
