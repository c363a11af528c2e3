"""``make mutants``: apply every break of the list to a copy of the package and see whether its tests notice.

The work tree is never touched.  Each break gets a temporary tree with its own package and tests; the editable install's
import hook is taken out there, and a plugin stops pytest unless the copy is what is imported.  All named tests must
first pass on an unbroken copy, or "caught" would mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from listed import PACKAGE, ROOT, Break, breaks

RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
LEAST_SHARE = 0.95
TIMEOUT = 300.0
WRONG_PACKAGE = 99

NO_HOOK = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
"""
GUARD = f"""
import pytest
from pathlib import Path

def pytest_configure(config):
    import desketch
    from desketch import _kernels
    here = Path(__file__).parents[1]
    for module in (desketch, _kernels):
        if not Path(module.__file__).is_relative_to(here):
            pytest.exit(f"{{module.__name__}} comes from {{module.__file__}}, not from {{here}}", {WRONG_PACKAGE})
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


def main() -> int:
    """Run the list; 0 when enough is caught and every survivor has its reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only breaks whose room, file or name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="breaks at a time")
    parser.add_argument("--json", type=Path, default=None, help=f"where to write; the whole list goes to {RESULT.name}")
    arguments = parser.parse_args()
    chosen = [one for one in breaks() if arguments.only in f"{one.room} {one.file} {one.name}"]
    started = time.monotonic()
    print(f"{len(chosen)} breaks; first their tests on the unbroken package", flush=True)
    code, output = attempt(None, sorted({test for one in chosen for test in one.tests}))
    if code:
        print(output)
        print("the tests fail without any break: mend that first")
        return 2
    with ThreadPoolExecutor(arguments.jobs) as pool:
        verdicts = list(progress(pool.map(judge, chosen), len(chosen)))
    return report(verdicts, time.monotonic() - started, arguments.json or (None if arguments.only else RESULT))


def attempt(broken: Break | None, tests: Iterable[str]) -> tuple[int, str]:
    """The tests' exit code and output in a tree of their own, with the break if there is one."""
    with tempfile.TemporaryDirectory(prefix="desketch-mutant-") as name:
        tree = Path(name)
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(PACKAGE, tree / "src" / "desketch", ignore=ignore)
        shutil.copytree(ROOT / "tests", tree / "tests", ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", tree)
        shutil.copy(kernels(), tree / "src" / "desketch")
        (tree / "src" / "sitecustomize.py").write_text(NO_HOOK)
        (tree / "src" / "mutant_guard.py").write_text(GUARD)
        if broken is not None:
            place = tree / "src" / "desketch" / broken.file
            place.write_text(broken.applied(place.read_text()))
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["OMP_NUM_THREADS"] = "1"
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "mutant_guard", "--no-header", "--tb=line"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=tree,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT if broken else None,
            )
        except subprocess.TimeoutExpired:
            return 1, f"FAILED hung for {TIMEOUT:g} s"
        return done.returncode, done.stdout


def kernels() -> Path:
    """The compiled extension of this environment."""
    from desketch import _kernels

    return Path(_kernels.__file__)


def judge(broken: Break) -> Verdict:
    """Whether the break's tests notice it: a failed test does, an error in collecting them does not count."""
    started = time.monotonic()
    code, output = attempt(broken, broken.tests)
    if code not in (0, 1):
        raise SystemExit(f"{broken.room}, {broken.name!r}: pytest ended with {code}, expected 0 or 1\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    by = failed.group(1) if failed else ""
    seconds = round(time.monotonic() - started, 1)
    return Verdict(broken.room, broken.name, broken.file, code == 1, by, seconds, broken.survives)


def progress(verdicts: Iterable[Verdict], total: int) -> Iterable[Verdict]:
    """A line for each, as they come."""
    for i, verdict in enumerate(verdicts, start=1):
        word = "caught  " if verdict.caught else "SURVIVED"
        print(f"[{i:3}/{total}] {word} {verdict.room:8} {verdict.name} ({verdict.seconds:g} s)", flush=True)
        yield verdict


def report(verdicts: list[Verdict], seconds: float, path: Path | None) -> int:
    """The table by room, the survivors with their reasons, and the JSON document."""
    print(f"\n{'room':10} {'breaks':>6} {'caught':>6}")
    for room in sorted({verdict.room for verdict in verdicts}):
        here = [verdict for verdict in verdicts if verdict.room == room]
        print(f"{room:10} {len(here):6} {sum(verdict.caught for verdict in here):6}")
    survivors = [verdict for verdict in verdicts if not verdict.caught]
    share = 1 - len(survivors) / max(1, len(verdicts))
    print(f"{'all':10} {len(verdicts):6} {len(verdicts) - len(survivors):6}   {share:.1%} in {seconds:.0f} s")
    for verdict in survivors:
        print(f"survived: {verdict.room}, {verdict.name}: {verdict.survives or 'NO REASON GIVEN; write a test'}")
    if path is not None:
        document = {"breaks": len(verdicts), "caught": len(verdicts) - len(survivors), "share": round(share, 4)}
        document |= {"seconds": round(seconds), "verdicts": [asdict(verdict) for verdict in verdicts]}
        path.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if share >= LEAST_SHARE and all(verdict.survives for verdict in survivors) else 1


if __name__ == "__main__":
    sys.exit(main())
