"""Start a gloo group of one worker file, each rank a process, and read what every rank saw."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import torch


def run(worker, folder, world, scenarios, *, expected=None):
    """What every rank wrote; ``expected`` are the return codes where some rank is meant to die."""
    (folder / "scenarios.pkl").write_bytes(pickle.dumps(scenarios))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(world), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        logs = [p.communicate(timeout=300)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    codes = [p.returncode for p in processes]
    assert codes == (expected or [0] * world), f"{codes}\n" + "\n".join(logs)
    files = [folder / f"rank{rank}.pt" for rank in range(world)]
    return [torch.load(file, weights_only=False) if file.exists() else None for file in files]
