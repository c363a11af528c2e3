"""``make setup`` keeps a torch that is there, and never brings CUDA to a machine without such a GPU unasked."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("install_torch", ROOT / "scripts" / "install_torch.py")
setup = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup)


@pytest.fixture
def world(monkeypatch, tmp_path):
    """A machine without torch, without a GPU, where nothing is really installed; what would be run is kept."""
    ran = []

    class World:
        here, gpu, plan = None, None, ["nvidia-cublas-cu12", "triton"]

    monkeypatch.setattr(setup, "installed", lambda: World.here)
    monkeypatch.setattr(setup, "planned", lambda: World.plan)
    monkeypatch.setattr(setup.shutil, "which", lambda name: World.gpu)
    monkeypatch.setattr(setup.subprocess, "run", lambda command, check: ran.append(" ".join(map(str, command))))
    monkeypatch.setattr(setup.sys, "prefix", str(tmp_path))
    World.ran, World.prefix = ran, tmp_path
    return World


def test_a_torch_that_is_there_is_kept(world):
    world.here = "2.9.1+cpu"
    setup.main(["auto"])
    assert world.ran == []


def test_without_a_gpu_the_cpu_build_is_taken(world):
    setup.main(["auto"])
    assert "uv pip install" in world.ran[-1]
    assert "--torch-backend cpu torch==2.13.0" in world.ran[-1]
    assert not any("pip install -q torch" in line and "uv" not in line for line in world.ran)


@pytest.mark.parametrize("change", [{"gpu": "/usr/bin/nvidia-smi"}, {"plan": []}])
def test_a_plain_install_where_it_fits(world, change):
    for name, value in change.items():
        setattr(world, name, value)
    setup.main([])
    assert [line.split("pip-version-check ")[1] for line in world.ran] == ["install -q torch==2.13.0"]


def test_arguments_go_to_pip_as_they_are(world):
    setup.main(["torch==2.12.0", "--index-url", "URL"])
    assert world.ran[0].endswith("install -q torch==2.12.0 --index-url URL")


def test_system_without_a_torch_says_so(world):
    with pytest.raises(SystemExit, match="the outer Python has no torch"):
        setup.main(["system"])


def test_cuda_libraries_are_found_in_pips_report():
    names = ["torch", "nvidia-cudnn-cu13", "sympy", "triton"]
    report = json.dumps({"install": [{"metadata": {"name": name}} for name in names]})
    assert setup.cuda_libraries(report) == ["nvidia-cudnn-cu13", "triton"]


def test_the_pins_follow_the_torch_that_is_here(tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "version", lambda name: "2.9.1+cu128")
    setup.write_constraints(tmp_path / "pins")
    pins, project = ((p).read_text().splitlines() for p in (tmp_path / "pins", ROOT / "constraints.txt"))
    assert [line for line in pins if line not in project] == ["torch==2.9.1"]
    assert setup.PINNED in project
