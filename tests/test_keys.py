"""Keys: published Philox vectors, injective paths, streams that do not depend on how they are cut."""

import numpy as np
import pytest

from desketch.errors import InputError
from desketch.keys import Key, philox4x32

# Known-answer vectors of Philox4x32-10 from the Random123 distribution (Salmon et al., SC 2011), file kat_vectors.
ONES = 0xFFFFFFFF
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_philox_matches_the_published_vectors(counter, key, words):
    assert tuple(philox4x32([counter], key)[0]) == words


def test_paths_concatenate_and_do_not_collide():
    key = Key(2023)
    assert key.fold_in("a", 1) == key.fold_in("a").fold_in(1)
    paths = [
        (),
        (1,),
        ("1",),
        (1, 1),
        (11,),
        ("11",),
        ("1", "1"),
        (0,),
        ("",),
        ("", ""),
        (-1,),
        (255,),
        (256,),
        ("a", "b"),
        ("ab",),
    ]
    assert len({key.fold_in(*path).bits for path in paths}) == len(paths)
    assert len({Key(seed).bits for seed in (0, 1, -1, 2**64, b"", b"\0", b"\1")}) == 7


def test_stream_does_not_depend_on_how_it_is_cut():
    key = Key(7).fold_in("round", 3)
    whole = key.words(1000)
    parts = [key.words(n, start) for start, n in ((0, 1), (1, 62), (63, 64), (127, 873))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_key_survives_its_bytes_and_is_immutable():
    key = Key(b"seed")
    assert Key.from_bits(key.bits) == key
    with pytest.raises(AttributeError):
        key.bits = b"0" * 16


@pytest.mark.parametrize("bad", [1.5, None, True, [1]])
def test_bad_seeds_and_steps_are_refused(bad):
    with pytest.raises(InputError):
        Key(bad)
    with pytest.raises(InputError):
        Key(1).fold_in(bad)
    with pytest.raises(InputError):
        Key(1).fold_in(b"bytes")
