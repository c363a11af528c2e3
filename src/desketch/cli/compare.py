"""``desketch compare``: what a target costs in bytes, against what users would pick instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from desketch.api.comparison import compare_methods, make_problem, summary
from desketch.baselines.compare import TUNING_SEEDS, Result
from desketch.baselines.criterion import HOLD
from desketch.baselines.methods import METHODS, find_methods, fitted
from desketch.baselines.store import TrialStore
from desketch.baselines.trial import Limits
from desketch.cli.document import emit
from desketch.core.files import write_durably
from desketch.core.metrics import Metric
from desketch.errors import ConfigError
from desketch.run.status import progress_line
from desketch.tasks import load_task

__all__ = ["app"]

app = typer.Typer(add_completion=False)
_DEFAULT = "alone,fedavgm,eden,topk,stc,desketch"


@app.command()
def compare(
    task: Annotated[str, typer.Option(help="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE")] = "digits",
    label: Annotated[str | None, typer.Option(help="label column of a CSV file, or several: a,b,c")] = None,
    goal: Annotated[str | None, typer.Option(help="classification, regression or multilabel")] = None,
    level: Annotated[str, typer.Option(help="symbols of a text: char or byte")] = "char",
    context: Annotated[int, typer.Option(help="symbols of a text that a model sees at once", min=1)] = 64,
    model: Annotated[str, typer.Option(help="softmax, mlp:512, cnn, gpt:2x64, or module:function")] = "mlp:64",
    methods: Annotated[str, typer.Option(help=f"comma-separated, of: {', '.join(METHODS)}; or all")] = _DEFAULT,
    target: Annotated[
        float, typer.Option(help="metric to reach and hold: accuracy or F1 in (0, 1], perplexity, RMSE")
    ] = 0.9,
    seeds: Annotated[int, typer.Option(help="measured runs per method", min=1)] = 3,
    tuning_seeds: Annotated[
        int, typer.Option(help="runs per setting while tuning; one alone picks by luck", min=1, max=len(TUNING_SEEDS))
    ] = len(TUNING_SEEDS),
    clients: Annotated[int, typer.Option(help="number of clients N", min=1)] = 10,
    partition: Annotated[str, typer.Option(help="iid, dirichlet:0.3, shards:2")] = "iid",
    fraction: Annotated[float, typer.Option(help="share of the clients asked each round")] = 1.0,
    local_steps: Annotated[int, typer.Option(help="local steps K of a round", min=1)] = 5,
    batch: Annotated[int, typer.Option(help="examples of a local step", min=1)] = 32,
    rounds: Annotated[int, typer.Option(help="give up after this many", min=1)] = 200,
    every: Annotated[int, typer.Option(help="rounds between evaluations", min=1)] = 5,
    untuned: Annotated[str, typer.Option(help="methods to measure with their default setting, without tuning")] = "",
    sooner: Annotated[
        bool, typer.Option("--sooner", help="count only settings that hold the target sooner than clients alone")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder of results; a rerun continues there")] = Path("runs/compare"),
    json_out: Annotated[str | None, typer.Option("--json", help="write the results to FILE, or - for stdout")] = None,
) -> None:
    """Tune every method with the same budget, then report the bytes that reach AND hold the target."""
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    chosen, plain = find_methods(names), find_methods([name for name in untuned.split(",") if name])
    learnt = load_task(task, label=label, goal=goal, level=level, context=context)
    metric = learnt.goal.metric
    _check_target(metric, target)
    problem = make_problem(
        learnt,
        model=model,
        clients=clients,
        split=partition,
        fraction=fraction,
        local_steps=local_steps,
        batch=batch,
    )
    limits = Limits(target=target, rounds=rounds, every=every)
    d = problem.engine(0).model.d
    with progress_line() as tell:
        results = compare_methods(
            problem,
            [fitted(method, d=d) for method in chosen],
            seeds=seeds,
            limits=limits,
            store=TrialStore(out / "trials.json"),
            untuned=[method.name for method in plain],
            sooner=sooner,
            tuning_seeds=TUNING_SEEDS[:tuning_seeds],
            progress=lambda label, t, value: tell(f"{label}: round {t}, {metric.title} {value:.4f}"),
        )
    report = {
        "command": " ".join(["desketch", *sys.argv[1:]]),
        **summary(problem, [result.row() for result in results], limits=limits, sooner=sooner),
    }
    write_durably(out / "compare.json", json.dumps(report, indent=1) + "\n")
    from desketch.report.comparison import plot_comparison

    plot_comparison(results, out / "compare.png", title=problem.name)

    def show() -> None:
        Console().print(_table(results, report["times_fewer_bytes"], target))
        print(f"trials, table and plot are in {out}")

    emit(report, json_out, show)


def _check_target(metric: Metric, target: float) -> None:
    if metric.share and not 0 < target <= 1:
        raise ConfigError(f"the target is {metric.title} between 0 and 1, got {target}; write 0.84 for 84%")
    if not target > 0:
        raise ConfigError(f"the target is a positive {metric.title}, got {target}")


def _table(results: Sequence[Result], ratios: dict[str, Any], target: float) -> Table:
    metric = results[0].metric
    shown = f"{metric.scale * target:g}{'%' if metric.share else ''}"
    table = Table(title=f"bytes of one client, up + down, to reach and hold {metric.title} {shown}")
    table.caption = (
        f"held: runs that reached it and stayed, by the median of the next {HOLD} evaluations; [95% interval]"
    )
    rows = [result.row() for result in results]
    alone = next((row["rounds"] for row in rows if row["method"] == "alone"), None)
    if any("*" in _rounds(row, alone) for row in rows):
        table.caption += "\n* no sooner than clients alone, who send nothing: see --sooner"
    for column in ("method", "kB [95%]", "rounds", "held", f"last {metric.title}", "desketch needs"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        factor = ratios.get(row["method"])
        table.add_row(
            row["method"],
            _kilobytes(row),
            _rounds(row, alone),
            f"{row['reached']}/{row['seeds']}",
            metric.show(row[f"last_{metric.name}"]),
            f"{factor['mean']:,.1f}x fewer" if factor else "",
        )
    return table


def _rounds(row: dict[str, Any], alone: float | None) -> str:
    if row["rounds"] is None:
        return "-"
    behind = row["bytes"] and alone is not None and row["rounds"] >= alone
    return f"{row['rounds']:g}{' *' if behind else ''}"


def _kilobytes(row: dict[str, Any]) -> str:
    if row["bytes"] is None:
        return "never"
    low, high = row["bytes_low"], row["bytes_high"]
    return f"{row['bytes'] / 1e3:,.1f}" + (f" [{low / 1e3:,.1f}, {high / 1e3:,.1f}]" if high else "")
