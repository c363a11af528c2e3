"""Packaging: a clean tree and an sdist install; the package works without the extension and without a compiler."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import desketch

ROOT = Path(__file__).parents[1]
PROBE = """
import json, numpy as np, desketch
from desketch.core import compiled
R = desketch.draw("sparse2", d=1000, b=100, key=desketch.Key(7))
print(json.dumps([desketch.__file__, compiled.available(), R.desketch(np.arange(100.0)).tobytes().hex()]))
"""


def run(*command, cwd, **environment):
    """Run a command with this interpreter's tools first on the path; return everything it said."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {k: v for k, v in os.environ.items() if k not in ("CXX", "DESKETCH_PURE", "DESKETCH_KERNELS")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=inherited | {"PATH": tools} | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def install(source, target, **environment):
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    return run("-m", "pip", "install", "-v", *options, "--target", target, source, cwd=target.parent, **environment)


def probe(target):
    """Use the package in ``target`` and no other (-S: no editable installs); say whether it has the kernels."""
    path = os.pathsep.join([str(target), *filter(None, sys.path)])
    file, kernels, bits = json.loads(run("-S", "-c", PROBE, cwd=target, PYTHONPATH=path))
    assert Path(file).is_relative_to(target)
    expected = desketch.draw("sparse2", d=1000, b=100, key=desketch.Key(7)).desketch(np.arange(100.0))
    assert bits == expected.tobytes().hex()
    assert "train" in run("-S", "-m", "desketch", "--help", cwd=target, PYTHONPATH=path)
    return kernels


@pytest.fixture
def tree(tmp_path):
    """The working tree as a clean clone has it."""
    try:
        listing = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone")
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


@pytest.fixture
def sdist(tree, tmp_path):
    run("-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check", "-o", tmp_path / "dist", ".", cwd=tree)
    (archive,) = (tmp_path / "dist").iterdir()
    return archive


def test_sdist_holds_what_a_build_needs(sdist, tree):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(p.relative_to(tree)) for p in (tree / "src").rglob("*") if p.is_file()}
    assert sources | {"CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md"} <= names


def test_pure_package(tree, tmp_path):
    said = install(tree, tmp_path / "pure", DESKETCH_PURE="1")
    assert "py3-none-any" in said
    assert not probe(tmp_path / "pure")
    shipped = {str(p.relative_to(tree / "src")) for p in (tree / "src" / "desketch").rglob("*") if p.is_file()}
    assert all((tmp_path / "pure" / name).is_file() for name in shipped)


def test_no_compiler(tree, tmp_path):
    said = install(tree, tmp_path / "bare", CXX="/nonexistent/c++")
    assert "no C++ compiler found" in said
    assert "reference path" in said
    path = os.pathsep.join([str(tmp_path / "bare"), *filter(None, sys.path)])
    assert "missing: no C++ compiler found" in run("-S", "-m", "desketch", "--version", cwd=tmp_path, PYTHONPATH=path)
    assert not probe(tmp_path / "bare")


@pytest.mark.slow
def test_compiler_without_vectors(tree, tmp_path):
    other = tmp_path / "other-c++"
    other.write_text('#!/bin/sh\nexec c++ -D__builtin_shuffle=absent -D__builtin_shufflevector=absent "$@"\n')
    other.chmod(0o755)
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler here")
    said = install(tree, tmp_path / "bare", CXX=str(other))
    assert "does not compile GNU vectors" in said
    assert not probe(tmp_path / "bare")


@pytest.mark.slow
def test_clean_clone_compiles_even_after_a_build_without_a_compiler(tree, tmp_path):
    install(tree, tmp_path / "bare", CXX="/nonexistent/c++")
    install(tree, tmp_path / "full")
    assert probe(tmp_path / "full")


@pytest.mark.slow
def test_sdist_compiles(sdist, tmp_path):
    install(sdist, tmp_path / "full")
    assert probe(tmp_path / "full")


@pytest.mark.slow
def test_sdist_and_wheel_install_in_a_fresh_environment_and_bring_the_command(sdist, tmp_path):
    """Built from the sdist as an index would have it; dependencies are lent, so that nothing is fetched."""
    dist = tmp_path / "wheel"
    run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", dist, sdist, cwd=tmp_path)
    (wheel,) = dist.glob("desketch-*.whl")
    run("-m", "venv", tmp_path / "fresh", cwd=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    (site,) = (tmp_path / "fresh" / "lib").glob("python3*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (site / "lent.pth").write_text("\n".join(lent) + "\n")  # paths alone: editable installs in them are not seen
    subprocess.run([python, "-m", "pip", "install", "--no-index", "--no-deps", wheel], check=True, capture_output=True)

    def cli(*arguments):
        command = [tmp_path / "fresh" / "bin" / "desketch", *arguments]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=True).stdout

    assert str(site) in subprocess.check_output([python, "-c", "import desketch; print(desketch.__file__)"], text=True)
    assert "kernels  compiled" in cli("--version")
    assert "test accuracy" in cli("train", "--rounds", "1", "--out", "run")
    assert (tmp_path / "run" / "report.html").is_file()
    assert json.loads(
        cli(
            "account",
            "--rounds",
            "10",
            "--sampling-rate",
            "0.1",
            "--noise-multiplier",
            "1",
            "--delta",
            "1e-5",
            "--json",
            "-",
        )
    )
