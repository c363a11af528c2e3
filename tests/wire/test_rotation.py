"""The compiled rotation: the reference's bits for every b, on every instruction set and number of threads."""

from binascii import crc_hqx

import numpy as np
import pytest

from desketch.core import compiled
from desketch.errors import SketchError
from desketch.keys import Key
from desketch.wire.codecs import SALTS
from desketch.wire.rotation import rotate, rotate_back, scaled_signs

pytestmark = pytest.mark.skipif(not compiled.available(), reason="the extension is not built")
KEY = Key(2023).fold_in("rotation", "update")
LONG = (300, 511, 512, 513, 700, 1000, 1643, 1696, 2048, 4095, 4097, 10_007, 65_536, 70_001)
TURNS = pytest.mark.parametrize("turn", [rotate, rotate_back])


def rows_of(b, n=3):
    """Rows of wide range, with zeros of both signs and numbers below the normal ones."""
    rng = np.random.default_rng(b)
    x = (rng.standard_normal((n, b)) * np.exp2(rng.integers(-30, 30, (n, b)))).astype(np.float32)
    x[0, rng.random(b) < 0.3] = 0.0
    x[-1, rng.random(b) < 0.1] = -0.0
    x[-1, rng.random(b) < 0.1] = np.float32(3e-42)
    return x, rng.integers(0, SALTS, n).tolist()


def bits(turn, x, salts, monkeypatch, **environment):
    with monkeypatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(f"DESKETCH_{variable}", value)
        return turn(x, KEY, salts).view(np.uint32)


@TURNS
def test_every_short_b_has_the_reference_bits(turn, monkeypatch):
    for b in range(1, 260):
        x, salts = rows_of(b)
        expected = bits(turn, x, salts, monkeypatch, KERNELS="reference")
        for isa in compiled.isas():
            got = bits(turn, x, salts, monkeypatch, KERNELS="compiled", ISA=isa)
            np.testing.assert_array_equal(got, expected, err_msg=f"b={b} on {isa}")


@TURNS
@pytest.mark.parametrize("b", LONG)
def test_long_rows_have_the_reference_bits_on_any_number_of_threads(turn, b, monkeypatch):
    monkeypatch.setattr(compiled, "_WORK_PER_THREAD", 1)
    x, salts = rows_of(b, n=7)
    expected = bits(turn, x, salts, monkeypatch, KERNELS="reference")
    for isa in compiled.isas():
        for threads in ("1", "2", "5"):
            got = bits(turn, x, salts, monkeypatch, KERNELS="compiled", ISA=isa, THREADS=threads)
            np.testing.assert_array_equal(got, expected, err_msg=f"{isa}, {threads} threads")


@pytest.mark.parametrize("bs", [range(1, 260), LONG], ids=["short", "long"])
def test_one_bit_messages_are_decoded_to_the_reference_bits(bs, monkeypatch):
    monkeypatch.setattr(compiled, "_WORK_PER_THREAD", 1)
    for b in bs:
        rng = np.random.default_rng(b)
        payloads = rng.integers(0, 256, (5, 4 + -(-b // 8)), dtype=np.uint8)
        salts, scales = rng.integers(0, SALTS, 5, dtype=np.uint32), rng.random(5, dtype=np.float32)

        def turn(x, key, salts, b=b, scales=scales):
            return scaled_signs(x, b, key, salts, scales)

        expected = bits(turn, payloads, salts, monkeypatch, KERNELS="reference")
        for isa in compiled.isas():
            got = bits(turn, payloads, salts, monkeypatch, KERNELS="compiled", ISA=isa, THREADS="3")
            np.testing.assert_array_equal(got, expected, err_msg=f"b={b} on {isa}")


@TURNS
def test_rows_need_not_be_contiguous_and_are_not_touched(turn, monkeypatch):
    x, salts = rows_of(700, n=6)
    kept = x.copy()
    expected = bits(turn, x[::2], salts[::2], monkeypatch, KERNELS="reference")
    np.testing.assert_array_equal(bits(turn, x[::2], salts[::2], monkeypatch, KERNELS="compiled"), expected)
    np.testing.assert_array_equal(x.view(np.uint32), kept.view(np.uint32))


def test_wide_rows_keep_their_precision(monkeypatch):
    """float64 is the reference's alone: it must not be cut to float32 where there are kernels."""
    x = rows_of(300)[0].astype(np.float64)
    monkeypatch.setenv("DESKETCH_KERNELS", "compiled")
    assert rotate(x, KEY, [1, 2, 3]).dtype == np.float64


def test_a_choice_of_kernels_that_cannot_be_had_is_refused(monkeypatch):
    monkeypatch.setenv("DESKETCH_ISA", "mmx")
    with pytest.raises(SketchError, match="DESKETCH_ISA must be one of"):
        rotate(*rows_of(20)[:1], KEY, [1, 2, 3])


def test_the_extension_refuses_rows_that_do_not_agree():
    from desketch import _kernels

    x, out = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    for salts, y in (([1], out), ([1, 2], out[:, :7].copy()), ([1, 2], out[:1])):
        with pytest.raises(ValueError, match="one salt a row"):
            _kernels.rotate(KEY.bits, "generic", np.array(salts, np.uint32), x, y, False, 1)
    with pytest.raises(ValueError, match="16 bytes"):
        _kernels.rotate(b"short", "generic", np.array([1, 2], np.uint32), x, out, False, 1)


def test_the_extension_refuses_messages_that_do_not_agree():
    from desketch import _kernels

    salts, scales = np.array([1, 2], np.uint32), np.ones(2, np.float32)
    payloads, out = np.zeros((2, 5), np.uint8), np.zeros((2, 8), np.float32)
    good = {"salts": salts, "scales": scales, "payloads": payloads, "start": 4, "out": out}
    for wrong in (
        {"salts": salts[:1]},
        {"scales": scales[:1]},
        {"payloads": payloads[:1]},
        {"start": 3},
        {"start": 6},
        {"out": np.zeros((2, 9), np.float32)},
        {"out": np.zeros((1, 8), np.float32)},
    ):
        with pytest.raises(ValueError, match="one salt, scale and payload a row"):
            _kernels.decode(KEY.bits, "generic", *{**good, **wrong}.values(), 1)


def test_the_compiled_check_is_that_of_the_library():
    data = np.random.default_rng(0).integers(0, 256, 600, dtype=np.uint8).tobytes()
    for size in (*range(40), 599, 600):
        for begun in (0, 0xFFFF, 0x1D0F):
            expected = crc_hqx(data[:size], begun)
            assert compiled.crc16(data[:size], begun) == compiled.crc16(memoryview(data)[:size], begun) == expected
    with pytest.raises(TypeError):
        compiled.crc16("text", 0)
