"""The compiled kernels: the same R as the reference, the same bits on every instruction set and number of threads."""

import json
import subprocess
import sys

import numpy as np
import pytest

import desketch
from desketch.core import compiled
from desketch.errors import SketchError

pytestmark = pytest.mark.skipif(not compiled.available(), reason="the extension is not built")

SHAPES = [(1, 1), (2, 1), (63, 7), (65, 64), (777, 200), (5000, 300), (40_000, 300), (70_001, 1000)]


def _outputs(case, d, b, monkeypatch, **environment):
    name, options = case
    options = {**options, **({"nnz": min(3, b)} if "nnz" in options else {})}
    with monkeypatch.context() as patch:
        for variable, value in environment.items():
            patch.setenv(f"DESKETCH_{variable}", value)
        R = desketch.draw(name, d=d, b=b, key=desketch.Key(5), **options)
    rng = np.random.default_rng(0)
    g, s = rng.standard_normal((2, d)), rng.standard_normal((2, b))
    forward = [R.sketch(g), R.sketch(g.astype("f4"))]
    w = np.ones((2, d), "f4")
    return forward, [R.desketch(s), R.desketch(s.astype("f4")), R.desketch_add_(w, s.astype("f4"), 0.3)]


@pytest.mark.parametrize(("d", "b"), SHAPES)
def test_compiled_is_the_reference(case, d, b, monkeypatch):
    """Transposes made of additions agree bit for bit; forward sums and dense products to rounding."""
    dense = case[0] in ("gaussian", "ams")
    b = min(b, 20) if dense else b
    forward, backward = _outputs(case, d, b, monkeypatch, KERNELS="compiled")
    forward_ref, backward_ref = _outputs(case, d, b, monkeypatch, KERNELS="reference")
    for got, expected in zip(forward, forward_ref, strict=True):
        tolerance = 1e-6 if got.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(got, expected, atol=tolerance * np.sqrt(d) * np.abs(expected).max())
    for got, expected in zip(backward, backward_ref, strict=True):
        if dense:
            np.testing.assert_allclose(got, expected, atol=1e-6 if got.dtype == np.float32 else 1e-14, rtol=1e-5)
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("d", "b"), [(65, 64), (5000, 300), (70_001, 1000), (300_000, 2000)])
def test_bits_do_not_depend_on_instruction_set_or_threads(case, d, b, monkeypatch):
    b = min(b, 20) if case[0] in ("gaussian", "ams") else b
    monkeypatch.setattr(compiled, "_WORK_PER_THREAD", 1)
    expected = None
    for isa in compiled.isas():
        for threads in ("1", "2", "5"):
            forward, backward = _outputs(case, d, b, monkeypatch, ISA=isa, THREADS=threads, KERNELS="compiled")
            if expected is None:
                expected = [*forward, *backward]
            for got, want in zip([*forward, *backward], expected, strict=True):
                np.testing.assert_array_equal(got, want)


def test_a_row_of_a_batch_has_the_bits_of_the_row_alone(case):
    name, options = case
    R = desketch.draw(name, d=20_000, b=200, key=desketch.Key(8), **options)
    g = np.random.default_rng(2).standard_normal((11, 20_000)).astype("f4")
    np.testing.assert_array_equal(R.sketch(g)[9], R.sketch(g[9]))


def test_unknown_instruction_set_is_refused(monkeypatch):
    monkeypatch.setenv("DESKETCH_ISA", "mmx")
    with pytest.raises(SketchError, match="DESKETCH_ISA must be one of"):
        desketch.draw("uniform", d=10, b=5, key=desketch.Key(0))


MEMORY = """
import json, resource, sys
import numpy as np
import desketch
d = 2**26
b = d // 128
g, y, w = np.ones(d, "f4"), np.ones(b, "f4"), np.ones(d, "f4")
name, options = sys.argv[1], json.loads(sys.argv[2])
small = desketch.draw(name, d=2**14, b=2**7, key=desketch.Key(0), **options)
small.desketch_add_(w[:2**14], small.sketch(g[:2**14]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
R = desketch.draw(name, d=d, b=b, key=desketch.Key(1), **options)
R.desketch_add_(w, R.sketch(g))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * b))
"""


@pytest.mark.parametrize(
    ("name", "options"),
    [("countsketch", {}), ("sparse1", {}), ("sparse2", {}), ("srht", {}), ("srht", {"block": 16384}), ("uniform", {})],
)
def test_memory_beyond_input_and_output_is_a_few_sketches(name, options):
    """Peak resident memory of sketching and de-sketching 2²⁶ floats grows by O(b), never by d."""
    command = [sys.executable, "-c", MEMORY, name, json.dumps(options)]
    sketches = float(subprocess.check_output(command, text=True))
    assert sketches < 24, f"{sketches:.1f} times the sketch; the input is 128 times the sketch"
