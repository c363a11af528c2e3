"""Encode and decode: codec and frame together, for one message or for a whole cohort at once.

Frames are full ones unless the ``agreed`` weight of their sender is given: then both ends are parties of one session,
and frames are short (`desketch.wire.short`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from desketch.errors import InputError, WireError
from desketch.keys import Key
from desketch.wire.codecs import CODEC_TABLE, Codec, rows
from desketch.wire.frame import Header, pack, unpack
from desketch.wire.rows import Rows
from desketch.wire.short import Opener, short_size, shorten

__all__ = ["Batch", "decode", "decode_batch", "decode_extra", "encode", "encode_batch", "frame_size"]

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
_LARGEST = 65504.0  # in f16; in one byte 57344, whose halves' lower byte is zero
_LARGEST_TINY = 57344.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What a cohort sent: row i and ``weights[i]`` come from ``senders[i]``; ``refused`` says why not."""

    senders: tuple[int, ...]
    rows: Rows
    weights: npt.NDArray[np.float64]
    refused: Mapping[int, str]
    extra: Floats  # (n, k): the numbers beside the codec's, k = tiny + extra of the header

    @property
    def values(self) -> Floats:
        """All rows decoded, (n, b)."""
        return self.rows.all()


def encode(
    values: Any,
    header: Header,
    *,
    rounding: Key | None = None,
    extra: Sequence[float] | None = None,
    agreed: float | None = None,
) -> bytes:
    """Encode b numbers (torch or NumPy) as one frame; int8 and int4 draw their rounding from the key ``rounding``.

    The rounding key must differ between senders and rounds, e.g. ``key.fold_in("rounding", client, t)``: equal keys
    make equal rounding errors, which then do not average out.  It need not be secret, and receivers do not need it.
    """
    single = values[None] if hasattr(values, "shape") else np.asarray(values, dtype=np.float32)[None]
    return encode_batch(
        single,
        header,
        rounding=None if rounding is None else [rounding],
        extra=None if extra is None else np.asarray(extra, dtype=np.float64)[None],
        agreed=None if agreed is None else [agreed],
    )[0]


def encode_batch(
    values: Any,
    header: Header,
    *,
    weights: Sequence[float] | None = None,
    rounding: Sequence[Key] | None = None,
    extra: npt.ArrayLike | None = None,
    agreed: Sequence[float] | None = None,
) -> list[bytes]:
    """Encode the rows of an ``(n, b)`` array as n frames, bit-equal to n calls of `encode`.

    ``weights`` overrides the header's weight row by row; ``rounding`` gives a key per row, required by int8 and int4;
    ``extra`` is (n, header.tiny + header.extra): rounded to the upper byte of an f16, or to f16, and held within range.
    """
    codec = _codec(header)
    x = rows(values, header.b)
    for name, given in (("weights", weights), ("rounding", rounding), ("agreed", agreed)):
        if given is not None and len(given) != len(x):
            raise InputError(f"{name} must have one entry per row, got {len(given)} for {len(x)} rows")
    if codec.stochastic and rounding is None:
        raise InputError(f"codec {codec.name} rounds at random: pass rounding keys, e.g. key.fold_in('rounding', c, t)")
    if len(x) == 0:
        return []
    payloads = codec.encode(x, header, rounding or ())
    told = {w: replace(header, weight=float(w)) for w in set(weights or ())}  # most senders of a cohort weigh alike
    headers = [header] * len(x) if weights is None else [told[w] for w in weights]
    tails = _tails(extra, len(x), header)
    rows_ = [row.tobytes() + tail for row, tail in zip(payloads, tails, strict=True)]
    if agreed is None:
        return [pack(head, row) for head, row in zip(headers, rows_, strict=True)]
    return [shorten(head, row, agreed=known) for head, row, known in zip(headers, rows_, agreed, strict=True)]


def decode(frame: bytes | memoryview, expect: Header, *, agreed: float | None = None) -> tuple[Header, Floats]:
    """Decode one frame strictly against ``expect`` (all but the weight); return the header as sent and b float32."""
    weight, payload = _reader(expect, agreed is not None)(frame, agreed)
    numbers, _ = _cut([payload], expect)
    return replace(expect, weight=weight), _codec(expect).decode(numbers, expect)[0]


def decode_extra(frame: bytes | memoryview, expect: Header, *, agreed: float | None = None) -> Floats:
    """The numbers beside those of one frame, (expect.tiny + expect.extra,)."""
    _, payload = _reader(expect, agreed is not None)(frame, agreed)
    return _numbers(_cut([payload], expect)[1], expect)[0]


def decode_batch(frames: Mapping[int, bytes], expect: Header, *, agreed: Mapping[int, float] | None = None) -> Batch:
    """Decode a cohort's frames together; a bad frame is refused with its reason and the others go on."""
    weights: dict[int, float] = {}
    payloads: dict[int, memoryview] = {}
    refused: dict[int, str] = {}
    read = _reader(expect, agreed is not None)
    for sender, frame in frames.items():
        try:
            weights[sender], payloads[sender] = read(frame, None if agreed is None else agreed.get(sender, 1.0))
        except WireError as error:
            refused[sender] = str(error)
    try:
        extra, rows = _decode_rows(payloads, expect)
    except WireError:  # row by row, to find out whose fault it is
        for sender, payload in list(payloads.items()):
            try:
                _decode_rows({sender: payload}, expect)
            except WireError as error:
                refused[sender] = str(error)
                del payloads[sender]
        extra, rows = _decode_rows(payloads, expect)
    claims = np.array([weights[sender] for sender in payloads], dtype=np.float64)
    return Batch(tuple(payloads), rows, claims, refused, extra)


def frame_size(header: Header, *, agreed: float | None = None) -> int:
    """Bytes of a frame with this header, without encoding anything."""
    if agreed is not None:
        return short_size(header, _size(header), agreed=agreed)
    return len(pack(header, b"\0" * _size(header)))


def _codec(header: Header) -> Codec:
    if header.codec not in CODEC_TABLE:
        raise InputError(f"codec {header.codec!r} carries an opaque payload: use pack and unpack")
    return CODEC_TABLE[header.codec]


def _reader(expect: Header, short: bool) -> Callable[[bytes | memoryview, float | None], tuple[float, memoryview]]:
    """What turns a frame, and the weight agreed on with its sender, into the weight and the payload."""
    size = _size(expect)
    opener = Opener(expect)

    def read_short(frame: bytes | memoryview, agreed: float | None) -> tuple[float, memoryview]:
        return opener.open(frame, agreed=1.0 if agreed is None else agreed)

    def read_full(frame: bytes | memoryview, agreed: float | None) -> tuple[float, memoryview]:
        header, payload = unpack(frame, expect)
        if len(payload) != size:
            more = f" and {expect.tiny + expect.extra} more" if expect.beside else ""
            raise WireError(
                f"payload length: got {len(payload)} bytes, {expect.codec} of b={expect.b}{more} takes {size}"
            )
        return header.weight, payload

    return read_short if short else read_full


def _size(header: Header) -> int:
    return _codec(header).size(header.b) + header.beside


def _cut(payloads: Collection[memoryview], expect: Header) -> tuple[Bytes, Bytes]:
    """The codec's bytes of every payload, and those of the extra numbers."""
    size = _codec(expect).size(expect.b)
    together = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), size + expect.beside)
    if not expect.beside:
        return together, together[:, size:]
    return together[:, :size].copy(), together[:, size:].copy()


def _decode_rows(payloads: Mapping[int, memoryview], expect: Header) -> tuple[Floats, Rows]:
    numbers, tails = _cut(payloads.values(), expect)
    return _numbers(tails, expect), _codec(expect).rows(numbers, expect)


def _tails(extra: npt.ArrayLike | None, n: int, header: Header) -> list[bytes]:
    """The numbers beside those of every row: upper bytes of f16, then f16, little-endian."""
    k = header.tiny + header.extra
    given = np.zeros((n, 0)) if extra is None else np.asarray(extra, dtype=np.float64)
    if given.shape != (n, k):
        raise InputError(f"extra must have {k} numbers for each of {n} rows, got shape {given.shape}")
    if not np.isfinite(given).all():
        raise InputError("extra: an extra number is not finite")
    halves = np.clip(given, -_LARGEST, _LARGEST).astype("<f2")
    tiny = np.clip(given[:, : header.tiny], -_LARGEST_TINY, _LARGEST_TINY).astype("<f2").view("<u2").astype(np.uint32)
    upper = (tiny + 0x7F + (tiny >> 8 & 1) >> 8).astype(np.uint8)  # to nearest, ties to even
    return [a.tobytes() + b.tobytes() for a, b in zip(upper, halves[:, header.tiny :], strict=True)]


def _numbers(tails: Bytes, header: Header) -> Floats:
    """What `_tails` wrote."""
    tiny = (tails[:, : header.tiny].astype("<u2") << 8).view("<f2")
    halves = np.frombuffer(tails[:, header.tiny :].tobytes(), "<f2").reshape(len(tails), header.extra)
    numbers = np.concatenate([tiny, halves], axis=1).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise WireError("extra: a number beside the payload is not finite")
    return numbers
