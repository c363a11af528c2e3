"""Docs: tables agree with the results they are generated from, and links between pages lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_tables_are_generated_from_the_results():
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_command_still_does_what_the_readme_says(tmp_path):
    """A message that grows or a default that moves must not leave the first table behind."""
    command = [sys.executable, "-m", "desketch", "train", "--out", str(tmp_path / "run"), "--quiet", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    today, said = json.loads(done.stdout), json.loads((ROOT / "benchmarks/results/demo.json").read_text("utf-8"))
    for fact in ("rounds", "clients", "d", "b", "bytes_up_per_client", "bytes_down_per_client"):
        assert today[fact] == said[fact], fact
    assert today["test_accuracy"] == pytest.approx(said["test_accuracy"], abs=0.01)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_inside_the_repository_exist(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_that_begins_ends(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"<!-- begin:(\S+) -->", text) == re.findall(r"<!-- end:(\S+) -->", text)


def test_every_page_is_in_the_site_and_every_entry_is_a_page():
    nav = set(re.findall(r"([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    elsewhere = {"index.md", "cli.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"}  # docs/site.py makes them
    assert nav - elsewhere == pages


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
