"""Assemble and build the documentation site: ``python docs/site.py`` (``make site``), strict and without a network.

The pages of ``docs/``, the README as the front page, and the pages of the repository's root are copied to
``build/site/docs`` with their links turned to where they stand there; the command line's reference is written from the
commands themselves; Zensical makes HTML of it by ``mkdocs.yml``; then every link, picture and anchor of the HTML is
followed, and one that leads nowhere, or out to a script, a style or a font, fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import links
from commands import reference

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
ROOT_PAGES = {"README.md": "index.md"} | {
    name: name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
}
COPIED = {".md", ".svg", ".png", ".css", ".py", ".ipynb"}
NOT_COPIED = {"tables"}
_TARGET = re.compile(r"(\]\(|src=\"|srcset=\"|href=\")([^)\s\"#]+)")


def assemble(target: Path) -> None:
    """Lay out the sources of the site."""
    shutil.rmtree(target, ignore_errors=True)
    for source in sorted((ROOT / "docs").rglob("*")):
        path = source.relative_to(ROOT / "docs")
        script = source.suffix == ".py" and path.parts[0] != "notebooks"
        if source.is_file() and source.suffix in COPIED and not script and path.parts[0] not in NOT_COPIED:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / path)
    for name, page in ROOT_PAGES.items():
        (target / page).write_text(_moved((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(ROOT / "examples", target / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (target / "cli.md").write_text(reference(), encoding="utf-8")


def _moved(page: str) -> str:
    """The links of a page of the root, as they are on the site."""
    return _TARGET.sub(lambda m: m[1] + m[2].removeprefix("docs/"), page)


def build() -> None:
    """Run Zensical in strict mode; it counts broken links, not what mkdocstrings could not find: that is read."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", "mkdocs.yml"]
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    if done.returncode or re.search(r"\bERROR\b|could not be found|Traceback", done.stdout):
        raise SystemExit("the site was not built: see above")


if __name__ == "__main__":
    assemble(SITE / "docs")
    build()
    broken = links.check(SITE / "html")
    see = (
        f"the site is in {SITE.relative_to(ROOT) / 'html'}; index.html opens as a file, but its search needs a server:"
    )
    print("\n".join(broken) or f"{see} python3 -m http.server -d {SITE.relative_to(ROOT) / 'html'}")
    raise SystemExit(1 if broken else 0)
