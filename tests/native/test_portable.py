"""The same source on another processor (aarch64, NEON, emulated): the bits of this one."""

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import desketch
from desketch.core import compiled
from desketch.keys import Key
from desketch.wire.rotation import rotate, rotate_back

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src" / "_kernels"
COMPILERS = {"here": ("g++", ()), "aarch64": ("aarch64-linux-gnu-g++", ("qemu-aarch64",))}
DEFAULTS = {"nnz": 1, "blocked": 0, "size": 0, "segment": 0, "scale": 1.0}
CASES = [
    ("gaussian", {}, 777, 20),
    ("ams", {}, 5000, 20),
    ("srht", {}, 5000, 300),
    ("srht", {}, 300_000, 2000),
    ("srht", {"block": 16}, 5000, 300),
    ("countsketch", {}, 70_001, 1000),
    ("countsketch", {"layout": "textbook"}, 5000, 300),
    ("sparse1", {"nnz": 3}, 5000, 300),
    ("sparse2", {"nnz": 3, "layout": "textbook"}, 5000, 300),
    ("uniform", {}, 70_001, 1000),
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not compiled.available(), reason="the extension is not built"),
]


@pytest.fixture(scope="module", params=COMPILERS)
def portable(request, tmp_path_factory):
    """A function that gives rows to the program, built for a processor, and reads rows back."""
    compiler, emulator = COMPILERS[request.param]
    for tool in (compiler, *emulator):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install g++-aarch64-linux-gnu qemu-user")
    program = tmp_path_factory.mktemp("portable") / "portable"
    sources = [HERE / "portable.cpp", KERNELS / "isa.cpp", KERNELS / "shared.cpp"]
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-w", "-static", "-pthread", "-DISA=generic", f"-I{KERNELS}"]
    subprocess.check_call([compiler, *flags, *sources, "-o", program])

    def run(rows, *arguments):
        command = [*emulator, program, *map(str, arguments)]
        done = subprocess.run(command, input=rows.astype("<f4").tobytes(), capture_output=True, check=True)
        return np.frombuffer(done.stdout, "<u4")

    return run


def words(bits):
    return struct.unpack("<4I", bits)


@pytest.mark.parametrize(("family", "options", "d", "b"), CASES)
def test_a_sketch_has_the_same_bits(portable, family, options, d, b, monkeypatch):
    asked = []
    inner = compiled.plan

    def recorded(name, key, sizes):
        asked.append((name, key, {**DEFAULTS, **sizes}))
        return inner(name, key, sizes)

    monkeypatch.setattr(compiled, "plan", recorded)
    R = desketch.draw(family, d=d, b=b, key=Key(2023).fold_in(family), **options)
    rng = np.random.default_rng(d)
    g, s = rng.standard_normal((2, d)).astype("f4"), rng.standard_normal((2, b)).astype("f4")
    forth, back = R.sketch(g), R.desketch(s)
    ((name, key, sizes),) = asked
    fields = [int(sizes[field]) for field in ("d", "b", "nnz", "blocked", "size", "segment")]
    arguments = (name, *words(key), *fields, repr(float(sizes["scale"])), 2)
    np.testing.assert_array_equal(portable(g, "sketch", *arguments), forth.view("<u4").ravel())
    np.testing.assert_array_equal(portable(s, "desketch", *arguments), back.view("<u4").ravel())


@pytest.mark.parametrize("b", [1, 3, 17, 63, 85, 256, 1643])
def test_the_rotation_has_the_same_bits(portable, b):
    x, salts, key = np.random.default_rng(b).standard_normal((3, b)).astype("f4"), (0, 77, 4095), Key(5)
    for verb, turn in (("forth", rotate), ("back", rotate_back)):
        got = portable(x, verb, *words(key.bits), b, *salts)
        np.testing.assert_array_equal(got, turn(x, key, salts).view("<u4").ravel())
