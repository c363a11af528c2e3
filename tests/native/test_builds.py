"""The kernels built in other ways: objects that share nothing, another compiler, sanitizers."""

import re
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src" / "_kernels"
X86 = subprocess.check_output(["uname", "-m"], text=True).strip() == "x86_64"


def flags_of(isa):
    """The flags of an instruction set, as CMakeLists.txt gives them."""
    given = re.search(rf"desketch_isa\({isa}([^)]*)\)", (ROOT / "CMakeLists.txt").read_text())
    return given[1].split()


@pytest.fixture
def compiler():
    if shutil.which("g++") is None or shutil.which("nm") is None:
        pytest.skip("no compiler here")
    return "g++"


@pytest.mark.skipif(not X86, reason="one instruction set only")
@pytest.mark.parametrize("level", ["-O0", pytest.param("-O3", marks=pytest.mark.slow)])
def test_objects_of_two_instruction_sets_define_no_function_in_common(compiler, level, tmp_path):
    """What both define, the linker takes from either: AVX-512 code would run on a machine without it.

    -O0 inlines nothing: whatever could be shared is there.
    """
    defined = {}
    for isa in ("generic", "avx2", "avx512"):
        command = [compiler, "-std=c++17", level, "-fPIC", "-w", f"-DISA={isa}", "-DDESKETCH_X86", *flags_of(isa)]
        subprocess.check_call([*command, "-c", KERNELS / "isa.cpp", "-o", tmp_path / f"{isa}.o"])
        listing = subprocess.check_output(["nm", "--defined-only", tmp_path / f"{isa}.o"], text=True)
        symbols = [line.split()[-2:] for line in listing.splitlines()]
        weak = {name for kind, name in symbols if kind in "WVuT" and not name.startswith("DW.ref.")}
        assert any(isa in name for name in weak)
        defined[isa] = weak
    for one, other in combinations(defined, 2):
        assert not defined[one] & defined[other]


@pytest.mark.slow
@pytest.mark.parametrize("build", ["clang", "sanitize"])
def test_the_conformance_suite_passes_on(build):
    if build == "clang" and shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed")
    done = subprocess.run([sys.executable, ROOT / "tests/native/builds.py", build], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
