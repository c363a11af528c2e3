"""``desketch bench robust``: what hostile clients cost, rule by rule, on sketches and on raw updates."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["robust"]


def robust(
    task: str = typer.Option("digits", help="digits, idx:FOLDER, npz:FILE or csv:FILE; labels are classes."),
    model: str = typer.Option("mlp:64", help="As of desketch train."),
    clients: int = typer.Option(20, help="Clients."),
    rounds: int = typer.Option(30, help="Rounds of every run."),
    local_steps: int = typer.Option(10, help="Local steps of a round."),
    compression: float = typer.Option(30.0, help="d / b."),
    codec: str = typer.Option("sign1", help="Codec of the sketches."),
    seeds: str = typer.Option("0", help="Of everything, who attacks included; losses are means over them."),
    attackers: str = typer.Option("1,4,6", help="How many attack."),
    attacks: str = typer.Option("absent,sign-flip,weight,gaussian,label-flip,alie,ipm", help="What they do."),
    partitions: str = typer.Option("iid dirichlet:0.3", help="How data are dealt out; separated by spaces."),
    rules: str = typer.Option("", help="Rules, separated by spaces; default: all, for up to 6 attackers of 20."),
    json_to: str | None = typer.Option(
        None, "--json", help="Write rows to a file as they finish, and go on from what it holds; - for stdout."
    ),
) -> None:
    """Train once for every attack, number of attackers, partition, rule and domain; show points of accuracy lost."""
    from desketch.hostile.bench import RULES, Bed, cells, measure
    from desketch.hostile.losses import losses

    bed = Bed(
        task=task,
        model=model,
        clients=clients,
        rounds=rounds,
        local_steps=local_steps,
        compression=compression,
        codec=codec,
    )
    wanted = list(
        cells(
            seeds=tuple(int(seed) for seed in seeds.split(",")),
            partitions=tuple(partitions.split()),
            attackers=tuple(int(count) for count in attackers.split(",")),
            attacks=tuple(attacks.split(",")),
            rules=tuple(rules.split()) or RULES,
        )
    )
    screen = Console(stderr=True)

    def tell(place: int, row: dict[str, object]) -> None:
        what = " ".join(str(row[name]) for name in ("seed", "partition", "attack", "attackers", "rule", "domain"))
        screen.print(f"{place + 1}/{len(wanted)} {what}: {row['accuracy']:.2%}", highlight=False)

    rows = measure(bed, wanted, None if json_to in (None, "-") else Path(str(json_to)), tell)
    if json_to == "-":
        typer.echo(json.dumps({"bed": vars(bed), "rows": rows}))
        return
    table = Table(title="points of accuracy lost: on sketches / on raw updates", title_justify="left")
    heads, lines = losses(rows)
    for head in heads:
        table.add_column(head, justify="left" if head in ("data", "attack") else "right")
    for line in lines:
        table.add_row(*line)
    Console().print(table)
