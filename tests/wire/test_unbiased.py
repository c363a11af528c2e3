"""E decode(encode(v)) = v for every codec and every vector, however concentrated: the case for the rotation.

The mean over n messages still carries an error of size sqrt(omega/n) |v|, so |E decode - v|² is estimated without it by
the product of the mean errors of two halves of the messages.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from desketch.keys import Key
from desketch.theory.link import sign_bias
from desketch.wire import CODEC_TABLE, Header, Wire, decode_batch, encode_batch
from desketch.wire.rotation import MIXED

LIMIT = 0.02  # of |v|
LOSSY = tuple(name for name in CODEC_TABLE if name != "f32")
FEW = tuple(name for name in CODEC_TABLE if name.startswith("trellis"))


def vectors(b):
    """Vectors of R^b on which sign codes go wrong, and some on which they do not."""
    i, rng = np.arange(b), np.random.default_rng(b)
    out = {
        "one-hot": i == 0,
        "last": i == b - 1,
        "a spike": np.where(i == 0, 1, 0.01),
        "(1, .5)": (i == 0) + 0.5 * (i == 1),
        "(1, .5) at the end": (i == b - 1) + 0.5 * (i == b - 2),
        "(1, .5) apart": (i == 0) + 0.5 * (i == b - 1),
        "three": i < 3,
        "2^-i": 0.5 ** np.minimum(i, 60),
        "1/i": 1 / (i + 1),
        "block": i < b // 4,
        "flat": np.ones(b),
        "gaussian": rng.standard_normal(b),
        "student": rng.standard_t(1.5, b),
    }
    return {name: np.asarray(v, dtype=np.float32) for name, v in out.items()}


def bias(codec, v, *, n, kind="update"):
    """|E decode - v|/|v| with its standard error, over n messages of as many rounds as it takes.

    A code with few rotations to choose from is unbiased over rounds, each of which has rotations of its own.
    """
    b, halves, energy = len(v), [], 0.0
    at_once = min(500, CODEC_TABLE[codec].salts // 8) if codec in FEW else 500
    for half in range(2):
        total = np.zeros(b)
        for start in range(0, n // 2, at_once):
            key = Key(31).fold_in(half, start) if codec in FEW else Key(31)
            header = Header(run=1, round=1, family="srht", d=2 * b, b=b, key=key, codec=codec, kind=kind)
            keys = [Key(7).fold_in(half, start + i) for i in range(min(at_once, n // 2 - start))]
            frames = encode_batch(np.repeat(v[None], len(keys), axis=0), header, rounding=keys)
            error = decode_batch(dict(enumerate(frames)), header).values.astype(np.float64) - v
            total, energy = total + error.sum(axis=0), energy + np.square(error).sum()
        halves.append(total / (n // 2))
    size = float(v.astype(np.float64) @ v)
    square, noise = halves[0] @ halves[1] / size, energy / n / size
    return np.sqrt(max(square, 0.0)), np.sqrt(noise / (n // 2) / np.sqrt(b))


@pytest.mark.parametrize("b", [MIXED, 20, 63, 64, 100, 256, 1696])
@pytest.mark.parametrize("name", vectors(4))
def test_one_bit_is_unbiased_for_every_vector(b, name):
    found, error = bias("sign1", vectors(b)[name], n=4000 if b < 1000 else 2000)
    assert found <= LIMIT + error
    assert error < LIMIT / 2, "the test has the power to see a bias of that size"


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("kind", ["update", "broadcast"])
@pytest.mark.parametrize("name", ["one-hot", "(1, .5)", "1/i", "student", "gaussian"])
def test_every_codec_is_unbiased_in_both_directions(codec, kind, name):
    found, error = bias(codec, vectors(64)[name], n=3000, kind=kind)
    assert found <= LIMIT + error


def test_below_the_limit_the_one_bit_code_is_biased_and_says_so():
    """The documented limit is not idle: at b = 8 the worst vector is off by several per cent."""
    found, error = bias("sign1", vectors(8)["(1, .5)"], n=4000)
    assert found - 2 * error > LIMIT


MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "one_bit_codes.json"


def test_the_planners_table_is_what_was_measured():
    """From above, and not by much; ``plan`` warns by this table, ``train`` by the same."""
    rows = [row for row in json.loads(MEASURED.read_text())["rows"] if row["code"] == "shipped"]
    found = {row["b"]: row["bias"] for row in rows}
    assert set(range(1, MIXED + 1)) <= set(found)
    for b, measured in found.items():
        assert measured <= sign_bias(b)
        assert sign_bias(b) <= max(0.01, 1.5 * max(later for size, later in found.items() if size >= b))
    assert max(later for size, later in found.items() if size >= MIXED) <= sign_bias(MIXED) <= LIMIT


@pytest.mark.parametrize(
    ("d", "settings", "said"),
    [
        (120, {"b": 16}, "8%"),
        (120, {"b": 3}, "150%"),
        (120, {"b": 15, "codec": "int8"}, None),
        (120, {"b": 15, "codec": "int8", "codec_down": "sign1"}, "25%"),
        (120, {"b": 17}, None),
        (120, {"b": 1}, None),
        (10, {"b": 10}, "use codec int8"),
    ],
)
def test_the_settings_say_what_the_table_says(d, settings, said):
    caution = Wire(**settings).caution(d)
    assert (caution is None) is (said is None)
    assert said is None or said in caution
    assert d >= MIXED or "larger b" not in caution
