"""The vectors of sketch spec v1, written by make_sketches.py: met by both paths, and by an oracle made of the text."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import desketch
from desketch.keys import Key
from desketch.sketches.dense import normals
from desketch.sketches.hashing import buckets, signs, subset


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).parent
VECTORS = json.loads((HERE.parent / "vectors" / "sketches.json").read_text())
maker, oracle = load(HERE.parent / "vectors" / "make_sketches.py"), load(HERE / "spec_oracle.py")
ROUNDED = {"f4": oracle.float32, "f8": oracle.float64}
TOLERANCE = {"f4": 2e-6, "f8": 1e-13}


def title(vector):
    options = ", ".join(f"{k}={v}" for k, v in vector["options"].items())
    return f"{vector['family']}({vector['d']}, {vector['b']}{options and ', ' + options})"


def seed_of(vector):
    seed = vector["seed"]
    return bytes.fromhex(seed["bytes"]) if isinstance(seed, dict) else seed


def fourier(vector):
    return vector["options"].get("transform") == "fourier"


def floats(text, dtype):
    return np.frombuffer(bytes.fromhex(text), dtype="<" + dtype)


def agree(vector, dtype, sketched, desketched):
    """Bits, but for an FFT and the sums of dense families: their order is free (sums of whole numbers are exact)."""
    for name, got in (("sketch", sketched), ("desketch", desketched)):
        want = floats(vector[dtype][name], dtype)
        free = vector["family"] == "gaussian" or (vector["family"] == "ams" and name == "desketch") or fourier(vector)
        if free:
            np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype] * np.abs(want).max())
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("vector", VECTORS["sketches"], ids=title)
def test_sketches(path, vector, dtype):
    d, b, key = vector["d"], vector["b"], Key.from_bits(bytes.fromhex(vector["key"]))
    R = desketch.draw(vector["family"], d=d, b=b, key=key, **vector["options"])
    assert R.compiled == (path == "compiled" and not fourier(vector))
    g, s = (np.array(x, dtype="<" + dtype) for x in maker.numbers(d, b))
    agree(vector, dtype, R.sketch(g), R.desketch(s)[maker.coordinates(d)])


@pytest.mark.parametrize("vector", VECTORS["sketches"], ids=title)
def test_oracle_sketches(vector):
    d, b = vector["d"], vector["b"]
    R = oracle.FAMILIES[vector["family"]](bytes.fromhex(vector["key"]), d, b, **vector["options"])
    for dtype, rounded in ROUNDED.items():
        g, s = ([rounded(v) for v in x] for x in maker.numbers(d, b))
        desketched = oracle.desketch(R, s, rounded)
        agree(vector, dtype, oracle.sketch(R, g, rounded), [desketched[i] for i in maker.coordinates(d)])


@pytest.mark.parametrize("vector", VECTORS["sketches"], ids=title)
def test_dense_matrices_are_equal_to_the_bit(path, vector):
    """De-sketching unit vectors adds nothing but in an FFT, so both paths and the oracle have one float64 matrix."""
    d, b, bits = vector["d"], vector["b"], bytes.fromhex(vector["key"])
    if d * b > 10000:
        pytest.skip("a large matrix says nothing more")
    R = oracle.FAMILIES[vector["family"]](bits, d, b, **vector["options"])
    rows = [oracle.desketch(R, [float(k == j) for j in range(b)], oracle.float64) for k in range(b)]
    got = desketch.draw(vector["family"], d=d, b=b, key=Key.from_bits(bits), **vector["options"]).to_dense()
    np.testing.assert_allclose(got, np.array(rows), rtol=0, atol=1e-14 if fourier(vector) else 0)


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda v: str(v["path"]))
def test_keys(vector):
    key = Key(seed_of(vector)).fold_in(*vector["path"])
    assert key.bits.hex() == vector["key"]
    assert f"{key.fingerprint():08x}" == vector["fingerprint"]
    assert oracle.derive(seed_of(vector), vector["path"]) == key.bits
    assert int.from_bytes(oracle.fingerprint(key.bits), "little") == key.fingerprint()


@pytest.mark.parametrize("vector", VECTORS["words"], ids=lambda v: f"{v['stream']}-{v['start']}")
def test_words(vector):
    bits, stream, start = bytes.fromhex(vector["key"]), vector["stream"], vector["start"]
    want = [int(w, 16) for w in vector["words"]]
    assert Key.from_bits(bits).words(len(want), start, stream=stream).tolist() == want
    assert [oracle.word(bits, stream, start + i) for i in range(len(want))] == want


@pytest.mark.parametrize("vector", VECTORS["signs"], ids=lambda v: str(v["table"]))
def test_signs(vector):
    bits, x, table = bytes.fromhex(vector["key"]), vector["x"], vector["table"]
    assert signs(Key.from_bits(bits), x[-1] + 1, table)[x].tolist() == vector["sign"]
    assert list(map(oracle.Signs(bits, table), x)) == vector["sign"]


@pytest.mark.parametrize("vector", VECTORS["buckets"], ids=lambda v: str(v["m"]))
def test_buckets(vector):
    bits, x, m, table = bytes.fromhex(vector["key"]), vector["x"], vector["m"], vector["table"]
    assert buckets(Key.from_bits(bits), x[-1] + 1, m, table)[x].tolist() == vector["bucket"]
    assert list(map(oracle.Buckets(bits, table, m), x)) == vector["bucket"]


@pytest.mark.parametrize("vector", VECTORS["subsets"], ids=lambda v: f"{v['b']}-of-{v['n']}")
def test_subsets(vector):
    bits, n, b = bytes.fromhex(vector["key"]), vector["n"], vector["b"]
    assert subset(Key.from_bits(bits), n, b).tolist() == vector["rows"]
    assert oracle.subset(bits, n, b) == vector["rows"]


def test_normals():
    pairs = [[int(w, 16) for w in v["words"]] for v in VECTORS["normals"]]
    want = [[int(w, 16) for w in v["normals"]] for v in VECTORS["normals"]]
    u, v = np.array(pairs, dtype=np.uint32).T
    assert np.stack([z.view(np.uint32) for z in normals(u, v)], axis=1).tolist() == want
    for (u, v), bits in zip(pairs, want, strict=True):
        assert [oracle.as_bits(z) & oracle.LOW for z in oracle.normal_pair(u, v)] == bits


def test_the_committed_vectors_are_those_of_the_command(monkeypatch):
    monkeypatch.setenv("DESKETCH_KERNELS", "reference")
    fresh = json.loads(maker.lines(maker.vectors()))
    for kind in ("keys", "words", "signs", "buckets", "subsets", "normals"):
        assert fresh[kind] == VECTORS[kind]
    assert [title(v) for v in fresh["sketches"]] == [title(v) for v in VECTORS["sketches"]]
