"""Execute the notebooks and write them as pages: ``make notebooks``, or ``python docs/execute.py NAME...`` for some.

``docs/notebooks/NAME.py`` is the source, in the percent format that editors and Jupyter open as a notebook; it is run
in a fresh kernel, and ``NAME.md`` with its pictures is what people read, here and on the site.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

FOLDER = Path(__file__).parent / "notebooks"
NOTE = "*This page is the notebook [{name}.py]({name}.py) as it ran; open that in Jupyter (jupytext), or run it.*\n"
HEAVY = 60_000  # bytes of a picture that a page should not exceed


def page(source: Path) -> None:
    """Run one notebook and write its page and pictures."""
    notebook = jupytext.read(source)
    NotebookClient(
        notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    pictures = source.with_name(f"{source.stem}_files")
    body, resources = MarkdownExporter().from_notebook_node(
        notebook, {"output_files_dir": pictures.name, "unique_key": "figure"}
    )
    shutil.rmtree(pictures, ignore_errors=True)
    for name, data in resources["outputs"].items():
        if len(data) > HEAVY:
            raise SystemExit(f"{name} has {len(data):,} bytes; draw a smaller picture")
        pictures.mkdir(exist_ok=True)
        (FOLDER / name).write_bytes(data)
    title, rest = body.lstrip("\n").split("\n", 1)
    text = f"{title}\n\n{NOTE.format(name=source.stem)}{rest}"
    source.with_suffix(".md").write_text(re.sub(r"!\[png\]", "![figure]", _plain(text)), encoding="utf-8")


def _plain(text: str) -> str:
    """No trailing blanks, one blank line at a time outside of code."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).rstrip("\n") + "\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.py")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            print(f"running {path.name}", flush=True)
            page(path)
