"""Memory that runs out is a MemoryError, or fewer threads, and nothing worse; what fails in a worker is raised."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import desketch
from desketch.core import compiled
from desketch.keys import Key
from desketch.wire.rotation import rotate

pytestmark = pytest.mark.skipif(not compiled.available(), reason="the extension is not built")
D, B, N = 20_000, 200, 6
FAMILIES = ("gaussian", "ams", "srht", "countsketch", "sparse1", "sparse2", "uniform")


@pytest.fixture
def fail_allocation():
    from desketch import _kernels

    yield _kernels.fail_allocation
    _kernels.fail_allocation(0)


def each_allocation_fails_once(fail_allocation, work):
    """Run ``work`` with its first allocation failing, then its second, ...: how often was that raised, survived?"""
    expected, raised, survived = work(), 0, 0
    for n in range(1, 1000):
        fail_allocation(n)
        try:
            np.testing.assert_array_equal(work(), expected)
            survived += 1
        except MemoryError:
            raised += 1
        if fail_allocation(0):  # it was not reached: that were all
            return raised, survived - 1
    raise AssertionError("more than 1,000 allocations")


@pytest.fixture(params=[1, 4])
def threads(request, monkeypatch):
    monkeypatch.setattr(compiled, "_WORK_PER_THREAD", 1)
    monkeypatch.setenv("DESKETCH_THREADS", str(request.param))
    return request.param


@pytest.mark.parametrize("family", FAMILIES)
def test_any_failing_allocation_of_a_sketch_is_raised_or_survived(family, threads, fail_allocation):
    """Threads beyond the first are no necessity: without memory for them, the others do the work."""
    rng = np.random.default_rng(0)
    g, s = rng.standard_normal((N, D)).astype("f4"), rng.standard_normal((N, B)).astype("f4")
    R = desketch.draw(family, d=D, b=B, key=Key(1))
    forth = each_allocation_fails_once(fail_allocation, lambda: desketch.draw(family, d=D, b=B, key=Key(1)).sketch(g))
    back = each_allocation_fails_once(fail_allocation, lambda: R.desketch(s))
    assert min(forth[0], back[0]) >= 1
    assert (forth[1] + back[1] >= 1) == (threads > 1 and family != "uniform")  # uniform has no working memory


def test_any_failing_allocation_of_the_rotation_is_raised_or_survived(threads, fail_allocation):
    x = np.random.default_rng(0).standard_normal((N, B)).astype("f4")
    assert each_allocation_fails_once(fail_allocation, lambda: rotate(x, Key(1), range(N))) == (2, threads - 1)


WORKERS = """
#include <cstdio>
#include <new>
#include "shared.h"
int main() {
  for (size_t bad = 0; bad < 4; ++bad) {
    struct Seen { size_t bad; int calls; } seen{bad, 0};
    try {
      desketch::on_threads(4, [](void* context, size_t t) {
        Seen& seen = *static_cast<Seen*>(context);
        __atomic_fetch_add(&seen.calls, 1, __ATOMIC_RELAXED);
        if (t == seen.bad) throw std::bad_alloc();
      }, &seen);
    } catch (const std::bad_alloc&) {
      std::printf("%d ", seen.calls);
    }
  }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler here")
def test_an_exception_in_any_thread_reaches_the_caller_when_all_have_ended(tmp_path):
    (tmp_path / "workers.cpp").write_text(WORKERS)
    kernels = Path(__file__).parents[2] / "src" / "_kernels"
    command = ["g++", "-std=c++17", "-pthread", f"-I{kernels}", tmp_path / "workers.cpp", kernels / "shared.cpp"]
    subprocess.check_call([*command, "-o", tmp_path / "workers"])
    assert subprocess.check_output([tmp_path / "workers"], text=True).split() == ["4", "4", "4", "4"]


LIMITED = """
import resource
import zlib
import numpy as np
import desketch
R = desketch.draw("srht", d=2**22, b=2**19, key=desketch.Key(1))
s, w = np.ones((2, 2**19), "f4"), np.zeros((2, 2**22), "f4")
_, hard = resource.getrlimit(resource.RLIMIT_AS)
for room in [*range(0, 120, 3), None]:
    status = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    used = 1024 * int(status["VmSize"].split()[0])
    w[:] = 0
    resource.setrlimit(resource.RLIMIT_AS, (hard if room is None else used + room * 2**20, hard))
    try:
        R.desketch(s, out=w)
        outcome = zlib.crc32(w)
    except MemoryError:
        outcome = "MemoryError"
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(outcome)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_address_limit_of_the_system_is_a_memory_error_or_no_hindrance(monkeypatch):
    """From no room at all to plenty: some threads cannot start, some cannot have their memory, at last all can."""
    monkeypatch.setenv("DESKETCH_THREADS", "4")
    done = subprocess.run([sys.executable, "-c", LIMITED], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    outcomes = done.stdout.split()
    assert outcomes[0] == "MemoryError"
    assert set(outcomes) == {"MemoryError", outcomes[-1]}
    assert outcomes[-2] == outcomes[-1] != "MemoryError"
