"""Coverage-guided fuzzing of everything that reads a stranger's bytes: ``make fuzz RUNS=1000000``.

``python tests/fuzz/run.py --runs N [--targets frame,order] [--seconds S] [--json FILE]`` runs each target in a process
of its own under atheris (libFuzzer), from the corpus of the repository and a growing one in a temporary folder.  It
prints a table of executions; a finding stops its target, prints the bytes, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
CLEAN = "only DesketchErrors"
MEMORY_MB = 1024  # of resident memory: a target that needs more has read a length before checking it


def main() -> int:
    """Run the targets one after another; say what each did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="executions of each target")
    parser.add_argument("--seconds", type=int, default=0, help="at most this long a target (0: no limit)")
    parser.add_argument("--targets", default="", help="some targets, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the table to this file as well")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.one:
        return fuzz(arguments.one, rest)
    names = arguments.targets.split(",") if arguments.targets else sorted(path.name for path in CORPUS.iterdir())
    print(f"{'target':12} {'executions':>12} {'coverage':>9}  outcome")
    rows = []
    for name in names:
        rows.append(fuzzed(name, arguments))
        print("{target:12} {executions:12,} {coverage:9,}  {outcome}".format(**rows[-1]), flush=True)
        if arguments.json:
            record(arguments.json, rows[-1])
    print(f"{'all':12} {sum(row['executions'] for row in rows):12,}")
    return int(any(row["outcome"] != CLEAN for row in rows))


def record(path: Path, row: dict[str, Any]) -> None:
    """Put a target's row into the file, in place of an earlier one; the others stay."""
    rows = json.loads(path.read_text())["targets"] if path.exists() else []
    rows = sorted([old for old in rows if old["target"] != row["target"]] + [row], key=lambda one: one["target"])
    command = "make fuzz RUNS=executions TARGETS=target JSON=FILE"
    path.write_text(json.dumps({"command": command, "targets": rows}, indent=1) + "\n")


def fuzzed(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Executions, edges covered and outcome of one target."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        command = [sys.executable, str(Path(__file__)), "--one", name, folder, str(CORPUS / name)]
        command += [f"-runs={arguments.runs}", f"-seed={arguments.seed}", f"-max_total_time={arguments.seconds}"]
        command += [
            f"-rss_limit_mb={MEMORY_MB}",
            "-max_len=4096",
            "-print_final_stats=1",
            f"-artifact_prefix={folder}/",
        ]
        done = subprocess.run(command, text=True, capture_output=True)
        log = done.stdout + done.stderr
        runs = [int(number) for number in re.findall(r"^#(\d+)\s", log, re.MULTILINE)]
        final = re.search(r"number_of_executed_units:\s*(\d+)", log)
        coverage = [int(number) for number in re.findall(r"cov: (\d+)", log)]
        outcome = CLEAN
        if done.returncode:
            found = [
                path.read_bytes().hex() for path in Path(folder).glob("*-*") if path.name.startswith(("crash", "oom"))
            ]
            outcome = f"FOUND {' '.join(found) or 'something'}"
            print(log[-4000:])
    executions = int(final[1]) if final else max(runs, default=0)
    return {"target": name, "executions": executions, "coverage": max(coverage, default=0), "outcome": outcome}


def fuzz(name: str, arguments: list[str]) -> int:
    """This process becomes libFuzzer on one target."""
    import atheris

    plain_imports()
    with atheris.instrument_imports(include=["desketch.wire", "desketch.session.protocol", "targets"]):
        import targets

    def one(data: bytes) -> None:
        targets.attempt(name, data)

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()
    return 0


def plain_imports() -> None:
    """Import desketch from the work tree by path: atheris cannot instrument what an editable install's finder loads."""
    extension = importlib.util.find_spec("desketch._kernels")
    for name in [name for name in sys.modules if name.partition(".")[0] == "desketch"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
    import desketch

    if extension is not None and extension.origin is not None:
        desketch.__path__.append(str(Path(extension.origin).parent))


if __name__ == "__main__":
    sys.exit(main())
