"""What fuzzing found, each finding as a test that fails without its mend."""

import struct

import pytest
from targets import attempt, resealed

from desketch.errors import WireError
from desketch.session.protocol import Order
from desketch.wire import peek

ORDER = Order(
    run=0x01020304, d=51_000, t=8, since=0, upto=7, digest=bytes(range(16)), agreement=b"{}", checkpoint=b"checkpoint"
)


def test_an_order_that_carries_another_runs_checkpoint_is_refused():
    """Found by the target ``order``: a right checksum and a foreign run id were accepted."""
    other = Order(**{**vars(ORDER), "run": 0x0102047A})
    first = peek(ORDER.pack()).size
    with pytest.raises(WireError, match="frames of another run"):
        Order.unpack(ORDER.pack()[:first] + other.pack()[first:])


def test_an_order_with_an_unknown_flag_is_refused():
    data = bytearray(ORDER.pack())
    data[peek(bytes(data)).start] |= 64
    with pytest.raises(WireError, match="unknown flag"):
        Order.unpack(resealed(bytes(data)))


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("bits", [0xFF7FB1B1, 0x7F7FFFFF, 0x7F7F0000, 0x00000001])
def test_numbers_at_the_ends_of_float32_come_back(codec, bits):
    """Found by the target ``values``: int8, int4 and f16 wrote frames that their receiver refused."""
    assert attempt("values", bytes([codec]) + struct.pack("<II", 0x3F800000, bits))
