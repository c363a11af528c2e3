"""``make mutants``: apply every break of the list to a copy of the package and see whether its tests notice.

The work tree is never touched.  Each break gets a temporary tree with its own package and tests, and a process forked
from this one, which has imported torch and its like once, but not desketch.  The editable install's import hook is
taken out there, and pytest stops unless the copy is what is imported.  All named tests must first pass on an unbroken
copy, or "caught" would mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from listed import PACKAGE, ROOT, Break, breaks

RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
LEAST_SHARE = 0.95
TIMEOUT = 600.0
SHARED = (
    "torch.func",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.datasets",
    "networkx",
    "safetensors.torch",
    "hypothesis",
)
FORK = multiprocessing.get_context("fork")

NO_HOOK = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
"""


@dataclass(frozen=True)
class Verdict:
    """What happened to one break."""

    room: str
    name: str
    file: str
    caught: bool
    by: str
    seconds: float
    survives: str


class Attempt:
    """Tests on a tree of their own, with a break or without, in a process of their own."""

    def __init__(self, broken: Break | None, tests: Sequence[str], kernels: Path) -> None:
        self.broken, self.started = broken, time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="desketch-mutant-")
        tree = Path(self._folder.name)
        self._output = tree / "output.txt"
        # compiled files come along: they are valid for sources of the same time and size, which the broken one is not
        shutil.copytree(PACKAGE, tree / "src" / "desketch")
        shutil.copytree(ROOT / "tests", tree / "tests")
        shutil.copy(ROOT / "pyproject.toml", tree)
        shutil.copy(kernels, tree / "src" / "desketch")
        (tree / "src" / "sitecustomize.py").write_text(NO_HOOK)  # for processes that the tests start
        if broken is not None:
            place = tree / "src" / "desketch" / broken.file
            place.write_text(broken.applied(place.read_text()))
        self.process = FORK.Process(target=run_tests, args=(tree, self._output, list(tests)))
        self.process.start()

    @property
    def late(self) -> bool:
        """Whether the tests hang, which is noticed too."""
        return self.broken is not None and time.monotonic() - self.started > TIMEOUT

    def end(self) -> tuple[int, str]:
        """The exit code and the output."""
        late = self.process.is_alive()
        if late:
            self.process.kill()
        self.process.join()
        output = f"FAILED hung for {TIMEOUT:g} s" if late else self._output.read_text(errors="replace")
        self._folder.cleanup()
        return 1 if late else self.process.exitcode or 0, output


def run_tests(tree: Path, output: Path, tests: list[str]) -> None:
    """In the forked process: import the copy and nothing else, run pytest, and leave."""
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    os.environ["PYTHONPATH"], os.environ["PYTHONDONTWRITEBYTECODE"] = str(tree / "src"), "1"
    sys.dont_write_bytecode = True
    exec(NO_HOOK)
    sys.path.insert(0, str(tree / "src"))
    for name in ("desketch", "desketch._kernels"):
        module = importlib.import_module(name)
        if not Path(str(module.__file__)).is_relative_to(tree):
            raise SystemExit(f"{name} comes from {module.__file__}, not from {tree}")
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--no-header", "--tb=line", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def attempts(chosen: list[Break], jobs: int, kernels: Path) -> Iterator[Verdict]:
    """The verdicts as they come, ``jobs`` breaks at a time."""
    waiting, open_ones = list(reversed(chosen)), []
    while waiting or open_ones:
        while waiting and len(open_ones) < jobs:
            broken = waiting.pop()
            open_ones.append(Attempt(broken, broken.tests, kernels))
        wait([one.process.sentinel for one in open_ones], timeout=5.0)
        for one in [one for one in open_ones if one.late or not one.process.is_alive()]:
            open_ones.remove(one)
            yield judge(one)


def judge(attempt: Attempt) -> Verdict:
    """Whether the break's tests noticed it: a failed test does, anything else than running them is an error."""
    broken = attempt.broken
    assert broken is not None
    code, output = attempt.end()
    if code not in (0, 1):
        raise SystemExit(f"{broken.room}, {broken.name!r}: the tests ended with {code}, expected 0 or 1\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    seconds = round(time.monotonic() - attempt.started, 1)
    by = failed.group(1) if failed else ""
    return Verdict(broken.room, broken.name, broken.file, code == 1, by, seconds, broken.survives)


def main() -> int:
    """Run the list; 0 when enough is caught and every survivor has its reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only breaks whose room, file or name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="breaks at a time")
    parser.add_argument("--json", type=Path, help=f"where to write the result; of the whole list: {RESULT.name}")
    arguments = parser.parse_args()
    chosen = [one for one in breaks() if arguments.only in f"{one.room} {one.file} {one.name}"]
    started = time.monotonic()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in SHARED:
        importlib.import_module(name)
    gc.freeze()  # the collectors of the forked processes need not look at all that
    kernels = compiled()
    print(f"{len(chosen)} breaks; first their tests on the unbroken package", flush=True)
    whole = Attempt(None, sorted({test for one in chosen for test in one.tests}), kernels)
    whole.process.join()
    code, output = whole.end()
    if code:
        print(f"{output}\nthe tests fail without any break: mend that first")
        return 2
    verdicts = []
    for verdict in attempts(chosen, arguments.jobs, kernels):
        verdicts.append(verdict)
        word = "caught  " if verdict.caught else "SURVIVED"
        count = f"[{len(verdicts):3}/{len(chosen)}]"
        print(f"{count} {word} {verdict.room:12} {verdict.name} ({verdict.seconds:g} s)", flush=True)
    verdicts.sort(key=lambda verdict: (verdict.room, verdict.file, verdict.name))
    return report(verdicts, time.monotonic() - started, arguments.json or (None if arguments.only else RESULT))


def compiled() -> Path:
    """The compiled extension of this environment, found by another process: this one must not import desketch."""
    command = [sys.executable, "-c", "from desketch import _kernels; print(_kernels.__file__)"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def report(verdicts: list[Verdict], seconds: float, path: Path | None) -> int:
    """The table by room, the survivors with their reasons, and the JSON document."""
    print(f"\n{'room':12} {'breaks':>6} {'caught':>6}")
    for room in sorted({verdict.room for verdict in verdicts}):
        here = [verdict for verdict in verdicts if verdict.room == room]
        print(f"{room:12} {len(here):6} {sum(verdict.caught for verdict in here):6}")
    survivors = [verdict for verdict in verdicts if not verdict.caught]
    share = 1 - len(survivors) / max(1, len(verdicts))
    print(f"{'all':12} {len(verdicts):6} {len(verdicts) - len(survivors):6}   {share:.1%} in {seconds:.0f} s")
    for verdict in survivors:
        print(f"survived: {verdict.room}, {verdict.name}: {verdict.survives or 'NO REASON GIVEN; write a test'}")
    if path is not None:
        document = {"breaks": len(verdicts), "caught": len(verdicts) - len(survivors), "share": round(share, 4)}
        document |= {"seconds": round(seconds), "verdicts": [asdict(verdict) for verdict in verdicts]}
        path.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if share >= LEAST_SHARE and all(verdict.survives for verdict in survivors) else 1


if __name__ == "__main__":
    sys.exit(main())
