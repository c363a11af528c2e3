"""Build the kernels in another way, into a temporary folder, and run the conformance suites against that build.

``python tests/native/builds.py clang`` or ``sanitize`` (``make clang``, ``make sanitize``).  The package is copied
beside the extension and tested with ``python -S``, so that neither the work tree nor an installed copy is used instead.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = ("tests/sketches", "tests/wire", "tests/native/test_failures.py")
# Not under sanitizers: their shadow memory counts as the process's own, and an address limit leaves them no room.
RESIDENT = "not memory_beyond_input and not address_limit"


def main() -> int:
    """Build, test, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", choices=BUILDS)
    with tempfile.TemporaryDirectory(prefix="desketch-") as folder:
        return BUILDS[parser.parse_args().build](Path(folder))


def clang(folder: Path) -> int:
    """The kernels as clang compiles them: same bits, so the same vectors."""
    compiler = os.environ.get("CLANG", "clang++")
    if shutil.which(compiler) is None:
        sys.exit(f"{compiler} is not installed: apt-get install clang, or name one with CLANG=")
    site = build(folder, f"-DCMAKE_CXX_COMPILER={compiler}")
    return test(site)


def sanitize(folder: Path) -> int:
    """The kernels under AddressSanitizer and UndefinedBehaviorSanitizer; the first finding ends the run."""
    site = build(folder, "-DDESKETCH_SANITIZE=address,undefined", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    compiler = os.environ.get("CXX", "g++")
    # The interpreter is not linked with either; without libstdc++ the sanitizer does not find the throw it wraps.
    runtimes = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    options = {
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # the interpreter keeps what it allocates
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "DESKETCH_THREADS": "2",
    }
    return test(site, "-k", RESIDENT, **options)


BUILDS = {"clang": clang, "sanitize": sanitize}


def build(folder: Path, *options: str) -> Path:
    """Compile into ``folder`` with these CMake options; return the folder to import desketch from."""
    site, objects = folder / "site", folder / "objects"
    shutil.copytree(ROOT / "src" / "desketch", site / "desketch", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-S", ROOT, "-B", objects, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", python, *options)
    run("cmake", "--build", objects)
    (extension,) = objects.glob("_kernels*.so")
    shutil.copy(extension, site / "desketch")
    return site


def test(site: Path, *options: str, **environment: str) -> int:
    """The suites against the build in ``site``, made sure that it is that one."""
    path = os.pathsep.join([str(site), *(entry for entry in sys.path[1:] if entry)])
    env = {**os.environ, "PYTHONPATH": path, "DESKETCH_KERNELS": "auto", **environment}
    probe = [sys.executable, "-S", "-c", "from desketch import _kernels; print(_kernels.__file__)"]
    loaded = subprocess.check_output(probe, text=True, env=env, cwd=ROOT).strip()
    if not Path(loaded).is_relative_to(site):
        sys.exit(f"{loaded} was loaded in place of the build in {site}")
    pytest = [sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "3000"]
    shown = ["--capture=sys"]  # what a sanitizer says on its way out is not pytest's to keep
    return subprocess.run([*pytest, *shown, *SUITES, *options], env=env, cwd=ROOT).returncode


def run(*command: object) -> None:
    """Run quietly; show everything where it fails."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)} failed:\n{done.stdout}")


if __name__ == "__main__":
    sys.exit(main())
