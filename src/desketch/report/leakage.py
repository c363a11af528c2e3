"""The page of a leakage audit: verdict, pictures, certificate, bounds, phase diagram, rounds, theorems; one file."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from desketch.report.plots import Series, line_figure, to_svg

__all__ = ["phase_figure", "render_audit"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CAP = 60.0  # dB: past this a reconstruction is exact to the eye
_CARDS = {
    "success_rate": ("recovered", "{:.0%}"),
    "psnr_median": ("median PSNR", "{:.1f} dB"),
    "psnr_bound": ("Bayesian bound", "{:.1f} dB"),
    "unknowns": ("unknowns m", "{}"),
    "measurements": ("measurements", "{}"),
    "sigma_min": ("relative σ_min", "{:.2g}"),  # noqa: RUF001
    "box_probability": ("box suffices", "{:.0%}"),
    "rounds_to_identify": ("rounds to identify", "{}"),
}


def render_audit(document: Mapping[str, Any], *, picture: bytes) -> str:
    """The audit's JSON document and its picture as one HTML page that fetches nothing."""
    style = files("desketch.report").joinpath("style.css").read_text(encoding="utf-8")
    title = f"Leakage audit: {document['verdict']}"
    settings = document.get("settings", {})
    about = ", ".join(f"{_words(k)} {_words(v)}" for k, v in settings.items() if v not in (None, False, ""))
    body = "".join(
        f"<section><h2>{escape(name)}</h2>{html}</section>" for name, html in _sections(document, picture) if html
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style} figure img {{ max-width: 100%; }}</style></head>\n"
        f"<body><main><header><h1>{escape(title)}</h1><p>{escape(about)}</p></header>"
        f'<div class="cards">{_cards(document)}</div>{body}</main></body></html>\n'
    )


def phase_figure(cells: Sequence[Mapping[str, Any]], value: str = "psnr_attack") -> Figure:
    """PSNR as colour and number over compression (columns) and noise (rows)."""
    sizes = sorted({(c["b"], c["compression"]) for c in cells}, reverse=True)
    noises = sorted({c["relative_noise"] for c in cells})
    table = {(c["b"], c["relative_noise"]): min(c[value], _CAP) for c in cells}
    grid = np.array([[table[b, z] for b, _ in sizes] for z in noises])
    with rc_context({"font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.6, 3.0))
        axes = figure.add_axes((0.14, 0.2, 0.84, 0.74))
        axes.imshow(grid, cmap="viridis", vmin=5, vmax=_CAP, aspect="auto")
        axes.set_xticks(range(len(sizes)), [f"{ratio:.3g}\n({b})" for b, ratio in sizes])
        axes.set_yticks(range(len(noises)), [f"{z:g}" for z in noises])
        axes.set_xlabel("compression d/b (and b)")
        axes.set_ylabel("noise std / |g|")
        for i, row in enumerate(grid):
            for j, level in enumerate(row):
                text = f"{level:.0f}" if level < _CAP else f"≥{_CAP:.0f}"
                axes.text(j, i, text, ha="center", va="center", color="white" if level < 40 else "black")
    return figure


def _sections(document: Mapping[str, Any], picture: bytes) -> list[tuple[str, str]]:
    data = base64.b64encode(picture).decode()
    alt = "originals, reconstructions and errors"
    return [
        ("Pictures", f'<figure><img alt="{alt}" src="data:image/png;base64,{data}"></figure>'),
        ("Threat model", _table(document.get("threat_model", {}))),
        ("Where it leaks", _plots(document)),
        ("Defence", _table(document.get("defence", {}))),
        ("The paper's theorems here", _theorems(document.get("landscape"))),
        ("Attacks", _attempts(document.get("attempts", []))),
    ]


def _cards(document: Mapping[str, Any]) -> str:
    cards = []
    for key, (name, form) in _CARDS.items():
        value = document.get(key)
        text = form.format(value) if value is not None else "never"
        cards.append(f'<div class="card"><b>{escape(text)}</b><span>{escape(name)}</span></div>')
    return "".join(cards)


def _plots(document: Mapping[str, Any]) -> str:
    parts = []
    for value, name in (("psnr_attack", "What the attack got"), ("psnr_bound", "Bayesian bound")):
        if document.get("phase_diagram"):
            figure = phase_figure(document["phase_diagram"], value)
            note = "PSNR in dB for one target; brighter is worse."
            parts.append(_figure(f"phase-{value}", f"{name}: compression x noise", figure, note))
    rounds = document.get("psnr_over_rounds")
    if rounds:
        xs = np.array([float(c["rounds"]) for c in rounds])
        curves = [
            Series(label=label, x=xs, y=np.minimum([c[key] for c in rounds], _CAP), dashed=key == "psnr_bound")
            for key, label in (("psnr_attack", "attack"), ("psnr_bound", "Bayesian bound"))
        ]
        figure = line_figure(curves, xlabel="rounds seen on the same data", ylabel="PSNR, dB (capped at 60)")
        parts.append(_figure("rounds", "PSNR over rounds", figure, "Fresh sketches of the same data add up."))
    return f'<div class="plots">{"".join(parts)}</div>' if parts else ""


def _theorems(landscape: Mapping[str, Any] | None) -> str:
    if not landscape:
        return ""
    rows = {
        p["theorem"]: f"{_standing(p)}: {p['because']}" + (f"; rate {p['rate']:.4g}" if p["rate"] is not None else "")
        for p in landscape["promises"]
    }
    seen = landscape["observed"]
    rows["observed gradient descent"] = f"loss x {seen['loss_rate']:.4g}, distance x {seen['distance_rate']:.4g} a step"
    return _table(rows) + _table(landscape["constants"])


def _standing(promise: Mapping[str, Any]) -> str:
    return "holds" if promise["holds"] else ("does not hold" if promise["possible"] else "cannot hold")


def _attempts(rows: Sequence[Mapping[str, Any]]) -> str:
    facts = {
        f"target {a['seed']}": f"{a['psnr']:.1f} dB, SSIM {a['ssim']:.3f}, by {a['solver']} in {a['seconds']:.2f} s"
        + ("" if a["labels_right"] else ", labels wrong")
        for a in rows
    }
    return _table(facts)


def _figure(prefix: str, title: str, figure: Figure, note: str) -> str:
    svg = to_svg(figure, prefix=prefix)
    return f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{escape(note)}</figcaption></figure>"


def _table(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(_words(name))}</th><td>{escape(_words(v))}</td></tr>"
        for name, v in facts.items()
        if v is not None
    )
    return f"<table>{rows}</table>" if rows else ""


def _words(value: Any) -> str:
    """A name or value as people write it: no underscores, no braces, four digits."""
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(name)} {_words(part)}" for name, part in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return value.replace("_", " ") if isinstance(value, str) and " " not in value and ":" not in value else str(value)
