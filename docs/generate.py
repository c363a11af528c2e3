"""Write the tables of README and docs from ``benchmarks/results/*.json`` (``make docs``; ``--check`` only compares).

A page asks for a table by a pair of comments, ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``.  NAME is a function of
a module in ``docs/tables``: ``kernels.marks`` is ``marks(result) -> Markdown`` of ``docs/tables/kernels.py``, given
``benchmarks/results/kernels.json``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- begin:(\w+)\.(\w+) -->\n).*?(<!-- end:\2\.\3 -->)", re.DOTALL)


def table(module_name: str, function: str) -> str:
    """Render one table as Markdown that ends with a newline."""
    path = Path(__file__).parent / "tables" / f"{module_name}.py"
    spec = importlib.util.spec_from_file_location(f"tables_{module_name}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"docs/tables/{module_name}.py does not exist, but a page asks for {module_name}.{function}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = json.loads((RESULTS / f"{module_name}.json").read_text(encoding="utf-8"))
    return str(getattr(module, function)(result)).rstrip("\n") + "\n"


def render(text: str) -> str:
    """Replace every block of a page by its table."""
    return BLOCK.sub(lambda m: m[1] + table(m[2], m[3]) + m[4], text)


def main() -> None:
    """Rewrite the pages, or with ``--check`` fail if any page is behind its results."""
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        before = page.read_text(encoding="utf-8")
        after = render(before)
        if after != before:
            stale.append(page.relative_to(ROOT).as_posix())
            if "--check" not in sys.argv:
                page.write_text(after, encoding="utf-8")
    print(f"{'stale' if '--check' in sys.argv else 'rewritten'}: {', '.join(stale) or 'nothing'}")
    if stale and "--check" in sys.argv:
        raise SystemExit("run `make docs` and commit the pages")


if __name__ == "__main__":
    main()
