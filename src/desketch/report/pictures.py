"""Pictures of a reconstruction: the original, what the attacker rebuilt, and the difference, as one PNG."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["comparison_png"]

Pictures = npt.NDArray[np.floating]


def comparison_png(
    truth: Pictures, rebuilt: Pictures, *, titles: list[str] | None = None, most: int = 8, dpi: int = 100
) -> bytes:
    """A grid with one column per example (n, ...): original, reconstruction, absolute error."""
    n = min(len(truth), most)
    figure = Figure(figsize=(max(1.1 * n, 2.2) + 0.9, 3.7), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, n, squeeze=False)
    rows = {"original": truth, "rebuilt": rebuilt, "error": np.abs(truth - rebuilt)}
    for axes, (name, pictures) in zip(grid, rows.items(), strict=True):
        for i, (axis, picture) in enumerate(zip(axes, pictures[:n], strict=True)):
            axis.imshow(_flat(picture), cmap="magma" if name == "error" else "gray", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            if name == "original" and titles is not None:
                axis.set_title(titles[i], fontsize=8)
        axes[0].set_ylabel(name, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def _flat(picture: Pictures) -> Pictures:
    """One grey or colour image; a vector becomes the squarest picture that holds it."""
    if picture.ndim == 3 and picture.shape[0] == 3:
        return np.clip(np.moveaxis(picture, 0, -1), 0, 1)
    if picture.ndim >= 2:
        return picture.reshape(picture.shape[-2:]) if picture.shape[0] == 1 or picture.ndim == 2 else picture.mean(0)
    width = int(np.ceil(np.sqrt(picture.size)))
    return np.pad(picture, (0, -picture.size % width)).reshape(-1, width)
