"""Table of docs/training.md from benchmarks/results/client_momentum.json."""

from __future__ import annotations

from statistics import fmean
from typing import Any

ROUNDS = (20, 60)
Curve = dict[int, float]


def table(result: dict[str, Any]) -> str:
    """One row a federation: validation accuracy without client momentum, and the points that it adds."""
    betas = sorted({cell["beta"] for cell in result["cells"]})
    heads = [f"after {t} rounds: 0 | {' | '.join(f'{beta:g}' for beta in betas[1:])}" for t in ROUNDS]
    lines = [
        f"| federation | K | {' | '.join(heads)} | seeds |",
        "|---" + "|---:" * (len(ROUNDS) * len(betas) + 2) + "|",
    ]
    for federation in (cell["federation"] for cell in result["cells"] if cell["beta"] == betas[0]):
        cells = {cell["beta"]: cell["curves"] for cell in result["cells"] if cell["federation"] == federation}
        curves = {beta: [dict(map(tuple, curve)) for curve in cells[beta]] for beta in betas if beta in cells}
        shown = [part for t in ROUNDS for part in _after(t, curves, betas)]
        lines.append(f"| {_what(federation)} | {federation['K']} | {' | '.join(shown)} | {len(curves[betas[0]])} |")
    return "\n".join(lines)


def _after(t: int, curves: dict[float, list[Curve]], betas: list[float]) -> list[str]:
    """The mean without, then for every beta the mean of the differences by seed, and the least and the largest."""
    without = curves[betas[0]]
    if t not in without[0]:
        return [""] * len(betas)
    shown = [f"{100 * fmean(curve[t] for curve in without):.1f}"]
    for beta in betas[1:]:
        gains = [100 * (b[t] - a[t]) for a, b in zip(without, curves.get(beta, []), strict=False)]
        shown.append(f"{fmean(gains):+.1f} [{min(gains):+.1f}, {max(gains):+.1f}]" if gains else "")
    return shown


def _what(federation: dict[str, Any]) -> str:
    data = "digits" if federation["task"] == "digits" else "Fashion-MNIST"
    asked = "" if federation["fraction"] == 1 else f"{round(federation['fraction'] * federation['clients'])} of "
    return (
        f"{data}, {federation['model']}, {federation['split']}, {asked}{federation['clients']}, b = {federation['b']}"
    )
