"""A quarter of the pixels: a folder of IDX images, averaged over 2 x 2, as one NPZ file for cheap grids of runs.

python benchmarks/pooled.py FASHION_MNIST_FOLDER fashion14.npz
desketch bench robust --task npz:fashion14.npz --model mlp:64 --rounds 25 --json benchmarks/results/robust.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from desketch.tasks.files import read_idx_folder


def pooled(images: np.ndarray) -> np.ndarray:
    """Bytes (n, 2h, 2w) to numbers in [0, 1], (n, hw)."""
    n, height, width = images.shape
    blocks = images.astype(np.float32).reshape(n, height // 2, 2, width // 2, 2)
    return blocks.mean(axis=(2, 4)).reshape(n, -1) / np.float32(255)


if __name__ == "__main__":
    folder, target = sys.argv[1:]
    data = read_idx_folder(Path(folder))
    np.savez(
        target,
        x_train=pooled(data.x.reshape(-1, 28, 28)),
        y_train=data.y,
        x_test=pooled(np.asarray(data.x_test).reshape(-1, 28, 28)),
        y_test=np.asarray(data.y_test),
    )
