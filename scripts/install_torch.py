"""Put torch into this environment without gigabytes nobody asked for (``make setup``).

On Linux the plain wheel of torch brings several GB of CUDA libraries, also where there is no such GPU.  In order:

1. a torch that is here already is kept (``make setup TORCH=system`` lets the environment see that of the outer Python);
2. what pip would take is installed if it needs no CUDA libraries, or if this machine has an NVIDIA GPU;
3. otherwise uv, which knows where PyTorch keeps its CPU builds, installs one of them.

Arguments (``make setup TORCH='torch==2.13.0 --index-url URL'``) go to ``pip install`` as they are, no questions asked.
Writes ``constraints.txt`` of the environment: the project's, with the torch that was found or installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED = "torch==2.13.0"
OLDEST = (2, 4)
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
HELP = f"""torch could not be installed without CUDA libraries. Choose one:
  make setup TORCH='{PINNED} --index-url URL'   the CPU index named on PyTorch's own installation page
  make setup TORCH=system                      a torch that {Path(sys.base_prefix).name} has already
  make setup TORCH='{PINNED}'                 with CUDA, several GB"""


def installed() -> str | None:
    """The version of the torch this environment sees, unless it is too old."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return None
    return found if tuple(map(int, re.findall(r"\d+", found)[:2])) >= OLDEST else None


def cuda_libraries(report: str) -> list[str]:
    """The packages for NVIDIA GPUs that pip says it would install, from ``pip install --dry-run --report -``."""
    names = [item["metadata"]["name"].lower() for item in json.loads(report)["install"]]
    return [name for name in names if name.startswith(("nvidia-", "cuda-")) or name == "triton"]


def planned() -> list[str]:
    """The CUDA libraries that a plain installation would bring."""
    plan = [*PIP, "install", "-q", "--dry-run", "--ignore-installed", "--report", "-", PINNED]
    return cuda_libraries(subprocess.run(plan, check=True, stdout=subprocess.PIPE, text=True).stdout)


def install_cpu_build() -> None:
    """Let uv take the CPU build from where PyTorch keeps it."""
    subprocess.run([*PIP, "install", "-q", "-c", ROOT / "constraints.txt", "uv"], check=True)
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable]
    subprocess.run([*uv, "--torch-backend", "cpu", PINNED], check=True)


def main(arguments: list[str]) -> None:
    """Install or find torch, and write the environment's constraints."""
    try:
        if arguments not in ([], ["auto"], ["system"]):
            subprocess.run([*PIP, "install", "-q", *arguments], check=True)
        elif installed():
            print(f"keeping torch {installed()}")
        elif arguments == ["system"]:
            raise SystemExit("TORCH=system, but the outer Python has no torch of version 2.4 or later")
        elif not planned() or shutil.which("nvidia-smi"):
            subprocess.run([*PIP, "install", "-q", PINNED], check=True)
        else:
            print("no NVIDIA GPU here: taking PyTorch's CPU build")
            install_cpu_build()
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error}\n\n{HELP}") from None
    write_constraints(Path(sys.prefix) / "constraints.txt")


def write_constraints(target: Path) -> None:
    """The project's pins, with torch as it is here."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = version("torch").partition("+")[0]
    target.write_text(re.sub(r"^torch==.*$", f"torch=={found}", pins, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
