"""Rows of a cohort: parts, choices and lengths are those of the whole decoded array."""

from __future__ import annotations

import numpy as np
import pytest

from desketch import Key
from desketch.core import compiled
from desketch.wire import CODEC_TABLE, Header, decode_batch, encode_batch
from desketch.wire.codecs import Rotated
from desketch.wire.rows import Beside, Decoded, OneBit, Rows

N = 21


def sent(codec: str, b: int, *, extra: int = 0) -> tuple[Rows, np.ndarray]:
    """What N clients sent, and the extra numbers beside it."""
    rng = np.random.default_rng(b)
    header = Header(run=1, round=2, family="srht", d=10 * b, b=b, key=Key(3), codec=codec, extra=extra)
    x = rng.normal(size=(N, b)) * 10.0 ** rng.integers(-20, 15, size=(N, 1))
    x[4] = 0
    rounding = [Key(5).fold_in("rounding", c) for c in range(N)]
    beside = rng.normal(size=(N, extra))
    batch = decode_batch(dict(enumerate(encode_batch(x, header, rounding=rounding, extra=beside))), header)
    assert not batch.refused
    return batch.rows, batch.extra


@pytest.mark.parametrize("codec", CODEC_TABLE)
@pytest.mark.parametrize("b", [17, 1000])
def test_parts_choices_and_lengths_are_those_of_the_whole(codec: str, b: int) -> None:
    rows, _ = sent(codec, b)
    whole = rows.all()
    assert whole.shape == (len(rows), rows.width) == (N, b)
    for start, stop in ((0, 8), (8, 16), (16, 24), (3, 4), (0, 0)):
        np.testing.assert_array_equal(rows.part(start, stop), whole[start:stop])
    which = [20, 0, 7, 7]
    np.testing.assert_array_equal(rows.chosen(which).all(), whole[which])
    np.testing.assert_array_equal(rows.chosen(which).norms(), rows.norms()[which])
    tolerance = 1e-6 if isinstance(CODEC_TABLE[codec], Rotated) else 1e-15
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(whole.astype(np.float64), axis=1), rtol=tolerance)
    assert rows.norms()[4] == 0


def test_one_bit_messages_stay_packed_and_tell_their_length_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = sent("sign1", 64)

    def decode(*_: object) -> None:
        raise AssertionError("a length asked for the numbers")

    monkeypatch.setattr("desketch.wire.rows.scaled_signs", decode)
    assert isinstance(rows, OneBit)
    assert (rows.norms() > 0).sum() == N - 1


def test_numbers_beside_a_row_are_its_last_and_count_for_its_length() -> None:
    rows, extra = sent("sign1", 64, extra=2)
    both = Beside(rows, extra)
    whole = np.concatenate([rows.all(), extra], axis=1)
    assert both.width == 66
    np.testing.assert_array_equal(both.all(), whole)
    np.testing.assert_array_equal(both.part(5, 9), whole[5:9])
    np.testing.assert_array_equal(both.chosen([9, 2]).all(), whole[[9, 2]])
    np.testing.assert_allclose(both.norms(), np.linalg.norm(whole.astype(np.float64), axis=1), rtol=1e-6)


@pytest.mark.parametrize("isa", [*compiled.isas(), None])
@pytest.mark.parametrize(("n", "b"), [(0, 5), (1, 1), (21, 17), (21, 1500)])
def test_rows_are_added_one_after_the_other_whatever_adds_them(isa, n, b, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of other bits would be another broadcast: plain loops are the oracle, at any number of rows at once."""
    rng = np.random.default_rng(n + b)
    rows = (rng.normal(size=(n, b)) * 10.0 ** rng.integers(-30, 30, size=(n, 1))).astype(np.float32)
    factors = rng.uniform(size=n)
    expected = np.zeros(b)
    for row, factor in zip(rows, factors, strict=True):
        expected = expected + factor * row.astype(np.float64)
    monkeypatch.setenv("DESKETCH_KERNELS", "compiled" if isa else "reference")
    monkeypatch.setenv("DESKETCH_ISA", isa or "")
    monkeypatch.setattr(compiled, "workers", lambda size, limit: 3)
    for cached in (1, 1 << 30):
        monkeypatch.setattr("desketch.wire.rows._CACHED", cached)
        assert Decoded(rows).weighted_sum(factors).tobytes() == expected.tobytes()


def test_no_rows_have_no_lengths_and_some_fit_a_cache() -> None:
    none = Decoded(np.empty((0, 30), dtype=np.float32))
    assert none.norms().shape == (0,)
    assert none.all().shape == (0, 30)
    assert (none.at_once, Decoded(np.empty((0, 10**7), dtype=np.float32)).at_once) == (2184, 8)
