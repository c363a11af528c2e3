"""``desketch --version`` tells what is installed; kernels can be left out at run time, and are not missing silently."""

import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import desketch
from desketch.cli.app import COMMANDS, cli
from desketch.core import compiled
from desketch.errors import SketchError


def lines(*arguments):
    done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.fixture
def plain(monkeypatch):
    for name in ("DESKETCH_KERNELS", "DESKETCH_PURE", "DESKETCH_ISA"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_version_names_kernels_instruction_set_torch_paho_and_flower(plain):
    said = lines("--version")
    assert said.splitlines()[0] == f"desketch {desketch.__version__}"
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["kernels", "python", "torch", "paho", "flwr"]
    assert (f"compiled, {compiled.isa()}" in said) if compiled.available() else ("missing: " in said)


@pytest.mark.skipif(not compiled.available(), reason="the extension is not built")
@pytest.mark.parametrize(("value", "honoured"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_pure_is_honoured_at_run_time(plain, value, honoured):
    plain.setenv("DESKETCH_PURE", value)
    assert compiled.wanted() is not honoured
    assert ("asks for the reference path" in lines("--version")) is honoured


def test_pure_and_compiled_contradict_each_other(plain):
    plain.setenv("DESKETCH_PURE", "1")
    plain.setenv("DESKETCH_KERNELS", "compiled")
    with pytest.raises(SketchError, match=r"DESKETCH_PURE.*DESKETCH_KERNELS=compiled"):
        desketch.draw("srht", d=64, b=8, key=desketch.Key(1))


def test_kernels_of_an_older_source_are_left_out_and_named(plain):
    plain.setitem(sys.modules, "desketch._kernels", SimpleNamespace(isas=tuple))
    with pytest.warns(UserWarning, match="built from an older source; install desketch again"):
        kernels, failure = compiled._load()
    plain.setattr(compiled, "_kernels", kernels)
    plain.setattr(compiled, "_failure", failure)
    assert "missing: the extension was built from an older source" in lines("--version")


def test_missing_kernels_have_a_reason(plain, tmp_path):
    plain.setattr(compiled, "_kernels", None)
    plain.setattr(compiled, "_REASON", tmp_path / "_no_kernels.txt")
    assert "DESKETCH_PURE=1" in compiled.absence()
    (tmp_path / "_kernels.cpython-399.so").touch()
    assert "does not load" in compiled.absence()
    (tmp_path / "_no_kernels.txt").write_text("no C++ compiler found")
    assert compiled.absence() == "no C++ compiler found when desketch was installed"
    assert "missing: no C++ compiler found" in lines("--version")
    plain.setenv("DESKETCH_KERNELS", "compiled")
    with pytest.raises(SketchError, match="no C\\+\\+ compiler found"):
        compiled.wanted()


@pytest.mark.parametrize("command", ["audit", "attack", "compare", "account", "train"])
def test_help_lists_each_option_once_and_in_groups(plain, command):
    plain.setenv("COLUMNS", "100")
    said = lines(command, "--help")
    listed = [line.split()[1] for line in said.splitlines() if line.startswith(("│ --", "│    --"))]
    assert len(listed) == len(set(listed)) > 5
    assert said.count("╭─") >= 4
    assert "RANGE" not in said


def test_every_command_has_help():
    assert all(line.endswith(".") for line, _ in COMMANDS.values())
