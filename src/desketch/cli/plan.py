"""``desketch plan``: which sketch, how many local steps, which step sizes and codec, for a target and a link; no torch.

``--from-run`` alone imports torch, to estimate the constants from a run's model and data.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from desketch.cli.document import emit
from desketch.cli.units import bits_per_second, count, seconds
from desketch.errors import InputError
from desketch.theory import Problem
from desketch.theory.link import Link
from desketch.theory.planner import Plan, Question, dense_plan, grow, plan

app = typer.Typer(help="Choose sketch, local steps, step sizes and codec for a target accuracy and a link.")

_LAWS = {"theorem": "worst case (theorems)", "curvature": "tr(H)/λ_max in place of d", "no sketch": "local GD, f32"}


@app.command(name="plan")
def plan_command(
    params: str | None = typer.Option(None, help="Parameters d, e.g. 1e6."),
    clients: str | None = typer.Option(None, help="Clients N."),
    smoothness: float | None = typer.Option(None, help="Smoothness L of every client's objective."),
    strong_convexity: str = typer.Option("non-convex", help="mu; 0 for merely convex; or non-convex."),
    epsilon: float = typer.Option(..., help="Target: f - f* (convex), or |grad f|² (non-convex)."),
    distance: float | None = typer.Option(None, help="|w0 - w*|."),
    gap: float | None = typer.Option(None, help="f(w0) - f*; L·distance²/2 when not given."),
    heterogeneity: float | None = typer.Option(None, help="sigma_star: root mean square of |grad f_c(w*)|."),
    gradient_bound: float | None = typer.Option(None, help="G >= |grad f_c|, for K > 1 on non-convex objectives."),
    trace_ratio: float | None = typer.Option(None, help="tr(H)/λ_max of the Hessian: adds the plan by curvature."),
    uplink: str = typer.Option("1Mbit", help="A client's uplink, e.g. 500kbit."),
    downlink: str = typer.Option("5Mbit", help="A client's downlink."),
    latency: str = typer.Option("50ms", help="One way."),
    step_time: str = typer.Option("0", help="One local step, e.g. 20ms."),
    participation: float = typer.Option(1.0, help="Share of the clients heard in a round."),
    local_steps: int | None = typer.Option(None, help="K, when it is not to be chosen."),
    objective: str = typer.Option("time", help="What to save: bits, time or rounds."),
    from_run: Path | None = typer.Option(None, help="Estimate the constants from a run folder of `desketch train`."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Plan a run by the theorems, by the curvature law where tr(H)/λ_max is known, and without sketching."""
    given: dict[str, Any] = {
        "d": None if params is None else count(params),
        "N": None if clients is None else count(clients),
        "L": smoothness,
        "distance": distance,
        "gap": gap,
        "sigma_star": heterogeneity,
        "G": gradient_bound,
        "trace_ratio": trace_ratio,
    }
    mu = _mu(strong_convexity)
    constants = _constants(given, from_run, convex=mu is not None)
    problem = Problem(mu=mu, **{k: constants[k] for k in ("L", "distance", "gap", "sigma_star", "G")})
    question = Question(
        problem=problem,
        d=constants["d"],
        N=constants["N"],
        eps=epsilon,
        link=Link(
            uplink=bits_per_second(uplink),
            downlink=bits_per_second(downlink),
            latency=seconds(latency),
            step_seconds=seconds(step_time),
        ),
        participation=participation,
        trace_ratio=constants["trace_ratio"],
        objective=objective,
        K=local_steps,
    )
    document = answer(question)
    emit(document, json_to, lambda: _show(document))


def answer(question: Question) -> dict[str, Any]:
    """Every plan and how cost grows, as one JSON document."""
    laws = ("theorem",) if question.trace_ratio is None else ("theorem", "curvature")
    plans = {law: plan(question, law) for law in laws}
    growth = grow(question, laws[-1])
    return {
        "question": asdict(question),
        "plans": {law: asdict(p) for law, p in plans.items()},
        "local_gd": asdict(dense_plan(question)),
        "growth": {
            "law": laws[-1],
            "d": [{"d": 10**i, "N": question.N} | _brief(p) for i, p in enumerate(growth["d"], start=3)],
            "N": [{"d": question.d, "N": 10**i} | _brief(p) for i, p in enumerate(growth["N"], start=1)],
        },
        "notes": _notes(question),
    }


def _brief(p: Plan) -> dict[str, Any]:
    return {name: getattr(p, name) for name in ("family", "b", "codec", "K", "T", "bits", "seconds")}


def _notes(question: Question) -> list[str]:
    notes = []
    if question.participation < 1:
        notes.append("the theorems assume that every client takes part: with fewer, T is a lower estimate")
    if question.trace_ratio is None:
        notes.append("the worst case promises no saving from sketches; give --trace-ratio or --from-run to see theirs")
    if question.K is None:
        notes.append("the theorems never reward K > 1 with fewer rounds, training does: --local-steps fixes K")
    return notes


def _constants(given: dict[str, Any], run: Path | None, *, convex: bool) -> dict[str, Any]:
    """Flags, over the estimates from a run; defaults only where a constant may be absent."""
    estimated = {} if run is None else _estimate(run)
    constants = estimated | {name: value for name, value in given.items() if value is not None}
    missing = [
        flag for name, flag in (("d", "--params"), ("N", "--clients"), ("L", "--smoothness")) if name not in constants
    ]
    if "distance" not in constants and (convex or "gap" not in constants):
        missing.append("--distance" if convex else "--distance (or --gap)")
    if missing:
        raise InputError(f"a plan needs {', '.join(missing)}; give the flags, or --from-run to estimate them")
    defaults = {"distance": 0.0, "gap": None, "sigma_star": 0.0, "G": None, "trace_ratio": None}
    return defaults | constants


def _estimate(run: Path) -> dict[str, Any]:
    from desketch.tasks.run_constants import estimate_run

    return asdict(estimate_run(run))


def _mu(text: str) -> float | None:
    if text == "non-convex":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--strong-convexity is a number or non-convex, got {text!r}") from None


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    columns = [*document["plans"].items(), ("no sketch", document["local_gd"])]
    table = Table("", *(_LAWS[law] for law, _ in columns), title=f"least {document['question']['objective']}")
    for label, render in _ROWS:
        table.add_row(label, *(render(p) for _, p in columns))
    console.print(table)
    for axis in ("d", "N"):
        growth = Table(axis, "family", "b", "codec", "K", "rounds", "total bits", "time", title=f"growth with {axis}")
        for row in document["growth"][axis]:
            cells = (row["family"], f"{row['b']:,}", row["codec"], str(row["K"]), f"{row['T']:,}")
            growth.add_row(f"10^{len(str(row[axis])) - 1}", *cells, _bits(row["bits"]), _duration(row["seconds"]))
        console.print(growth)
    for note in document["notes"]:
        console.print(f"note: {note}")


def _bits(bits: float) -> str:
    for unit in ("bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit"):
        if bits < 1000:
            return f"{bits:.3g} {unit}"
        bits /= 1000
    return f"{bits:.3g} Ebit"


def _duration(total: float) -> str:
    for unit, size in (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if total >= size:
            return f"{total / size:.3g} {unit}"
    return f"{total:.3g} s"


_ROWS: tuple[tuple[str, Any], ...] = (
    ("family", lambda p: p["family"]),
    ("sketch size b (d/b)", lambda p: f"{p['b']:,} ({p['compression']:.4g}x)"),
    ("codec", lambda p: p["codec"]),
    ("local steps K", lambda p: str(p["K"])),
    ("rounds T", lambda p: f"{p['T']:,}"),
    ("eta_local", lambda p: f"{p['eta_local']:.4g}"),
    ("eta_global", lambda p: f"{p['eta_global']:g}"),
    ("alpha (with rounding)", lambda p: f"{p['alpha']:.4g} ({p['alpha_on_the_wire']:.4g})"),
    ("total bits", lambda p: _bits(p["bits"])),
    ("time on the link", lambda p: _duration(p["seconds"])),
    ("theorem", lambda p: p["theorem"]),
    ("what binds", lambda p: "; ".join(p["binds"])),
)
