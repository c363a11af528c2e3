"""A tour of the seven sketches: draw R, sketch a vector, de-sketch it, and see the price."""

from __future__ import annotations

import numpy as np

import desketch


def main() -> None:
    """Print, for every family, how close the average of RᵀRg over fresh R comes to g."""
    d, b, T = 256, 32, 400
    g = np.sin(np.arange(d))
    for family in desketch.FAMILIES:
        draws = (desketch.draw(family, d=d, b=b, key=desketch.Key(2023).fold_in("round", t)) for t in range(T))
        mean = np.mean([R.desketch(R.sketch(g)) for R in draws], axis=0)
        error = float(np.linalg.norm(mean - g) / np.linalg.norm(g))
        R = desketch.draw(family, d=d, b=b, key=desketch.Key(2023))
        print(f"{R!r:45} one draw: |RᵀRg - g| ~ {R.alpha**0.5:.2f}|g|; mean of {T}: {error:.2f}|g|")


if __name__ == "__main__":
    main()
