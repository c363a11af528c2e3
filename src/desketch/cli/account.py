"""``desketch account``: what privacy a run gives, from flags, a configuration or a run folder; no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from desketch.cli.document import emit
from desketch.errors import InputError, PrivacyError
from desketch.privacy.events import EVERYBODY, Event, Gaussian, Ledger, LocalSteps, PoissonSampled, check_delta

app = typer.Typer(
    add_completion=False, help="State the epsilon of a run by several accountants, or calibrate its noise."
)

_CURVE_POINTS = 16


@app.command()
def account(
    source: Path | None = typer.Argument(None, help="A run folder, its privacy.json, or a configuration (YAML, JSON)."),
    examples: int | None = typer.Option(None, help="Examples n of a client (the smallest client is the worst case)."),
    batch: int | None = typer.Option(None, help="Expected Poisson batch size B."),
    local_steps: int | None = typer.Option(None, help="Local steps K of a round."),
    rounds: int | None = typer.Option(None, help="Rounds T."),
    sampling_rate: float | None = typer.Option(None, help="Client level: chance of a client to take part in a round."),
    noise_multiplier: float | None = typer.Option(None, help="Noise standard deviation over the clip, z."),
    delta: float | None = typer.Option(None, help="Delta; there is no default."),
    epsilon: float | None = typer.Option(None, help="Target epsilon, with --calibrate."),
    calibrate: bool = typer.Option(False, "--calibrate", help="Find the noise multiplier for --epsilon."),
    adjacency: str = typer.Option("add-remove", help="add-remove or replace-one."),
    curve: bool = typer.Option(False, "--curve", help="Add epsilon over the rounds to the JSON document."),
    plot: Path | None = typer.Option(None, help="Draw epsilon over the rounds into this file."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Account for a run: epsilon by pld, rdp and the paper's theorems, or, with --calibrate, the noise it needs."""
    flags: dict[str, float | None] = {
        "examples": examples,
        "batch": batch,
        "local_steps": local_steps,
        "rounds": rounds,
    }
    flags |= {"sampling_rate": sampling_rate, "noise_multiplier": noise_multiplier, "delta": delta, "epsilon": epsilon}
    given = _from_source(source) if source is not None else {}
    given |= {name: value for name, value in flags.items() if value is not None}
    if "delta" not in given:
        raise InputError("delta is missing and has no default: add --delta, well below 1/(number of units)")
    check_delta(given["delta"])
    if calibrate:
        given["noise_multiplier"] = _calibrated(given, adjacency)
    ledger = (None if calibrate else given.get("ledger")) or _ledger(given, given.get("noise_multiplier"), adjacency)
    document: dict[str, Any] = (
        {"noise_multiplier": given["noise_multiplier"]} if calibrate else _document(ledger, given["delta"])
    )
    if curve or plot is not None:
        document["curve"] = _curve(ledger, given["delta"])
    if plot is not None:
        _draw(document["curve"], given["delta"], plot)
    emit(document, json_to, lambda: _show(document, ledger, given["delta"]), also=[plot] if plot else [])


def _from_source(path: Path) -> dict[str, Any]:
    """Read a run folder (its ledger and delta) or a configuration (its numbers)."""
    from desketch.privacy.record import read_configuration, read_record

    file = path / "privacy.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"no {file}: expected a run folder with a privacy.json (a run with --dp), or a configuration file"
        )
    if file.name != "privacy.json":
        return read_configuration(file)
    record = read_record(file)
    return {"ledger": record.ledger, "delta": record.delta}


def _event(given: dict[str, Any], z: float) -> tuple[Event, str]:
    """Return one round's event and its unit: the client level when a sampling rate is given, else the example level."""
    if "sampling_rate" in given:
        return PoissonSampled(given["sampling_rate"], Gaussian(z)), "client"
    missing = [f"--{name.replace('_', '-')}" for name in ("examples", "batch", "local_steps") if name not in given]
    if missing:
        raise InputError(f"missing {', '.join(missing)} (example level), or --sampling-rate (client level)")
    return LocalSteps(given["examples"], given["batch"], given["local_steps"], z), "example"


def _ledger(given: dict[str, Any], z: float | None, adjacency: str) -> Ledger:
    if z is None:
        raise InputError("missing --noise-multiplier; or ask for it with --epsilon and --calibrate")
    if "rounds" not in given:
        raise InputError("missing --rounds")
    event, unit = _event(given, z)
    return Ledger(unit, adjacency).plus(event, count=given["rounds"])


def _calibrated(given: dict[str, Any], adjacency: str) -> float:
    from desketch.privacy.calibrate import noise_multiplier

    if "epsilon" not in given:
        raise InputError("--calibrate needs a target: add --epsilon")
    if "ledger" in given:
        raise InputError("--calibrate plans a run; give flags or a configuration, not the folder of a run that is over")
    return noise_multiplier(given["epsilon"], given["delta"], lambda z: _ledger(given, z, adjacency))


def _document(ledger: Ledger, delta: float) -> dict[str, Any]:
    """Return epsilon by every method; null, with the reason, where a method's preconditions fail."""
    from desketch.privacy.accountants import PAPER_METHODS, epsilon

    why: dict[str, str] = {}

    def value(method: str) -> float | None:
        try:
            return epsilon(ledger, delta, method=method)
        except PrivacyError as error:
            if ledger.not_private:
                raise
            why[method.removeprefix("paper-")] = str(error)
            return None

    pld, rdp = value("pld"), value("rdp")
    paper: dict[str, Any] = {method.removeprefix("paper-"): value(method) for method in PAPER_METHODS}
    return {"pld": pld, "rdp": rdp, "paper": paper | {"why": why}}


def _curve(ledger: Ledger, delta: float) -> dict[str, list[float]]:
    """Return epsilon (pld) after some of the rounds of the longest history, at most 16 points."""
    from desketch.privacy.accountants import epsilon

    total = max(sum(counts.values()) for counts in ledger.spent.values())
    marks = sorted({max(1, round(total * i / _CURVE_POINTS)) for i in range(1, _CURVE_POINTS + 1)})
    scaled = [
        replace(
            ledger,
            spent={
                p: {e: max(1, round(n * t / total)) for e, n in counts.items()} for p, counts in ledger.spent.items()
            },
        )
        for t in marks
    ]
    return {"round": [float(t) for t in marks], "pld": [epsilon(part, delta) for part in scaled]}


def _draw(curve: dict[str, list[float]], delta: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.plot(curve["round"], curve["pld"], marker="o", markersize=3)
    axes.set(xlabel="round", ylabel=f"epsilon at delta = {delta:g}", ylim=(0, None), title="Privacy spent (pld)")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _show(document: dict[str, Any], ledger: Ledger, delta: float) -> None:
    if "noise_multiplier" in document:
        print(f"noise multiplier {document['noise_multiplier']:.6g}")
    else:
        _table(document, ledger, delta)


def _table(document: dict[str, Any], ledger: Ledger, delta: float) -> None:
    from rich.console import Console
    from rich.table import Table

    parties = "the whole cohort" if set(ledger.spent) == {EVERYBODY} else f"the worst of {len(ledger.spent)} clients"
    title = f"epsilon at delta = {delta:g}, unit: {ledger.unit}, adjacency: {ledger.adjacency}, {parties}"
    table = Table("method", "epsilon", "remark", title=title)
    why = document["paper"]["why"]
    tight = [(name, document[name]) for name in ("pld", "rdp")]
    paper = [(f"paper, {name}", value) for name, value in document["paper"].items() if name != "why"]
    for name, value in tight + paper:
        remark = why.get(name.removeprefix("paper, "), "")
        table.add_row(name, "-" if value is None else f"{value:.5g}", remark)
    Console().print(table)
