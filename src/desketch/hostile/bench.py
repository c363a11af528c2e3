"""The grid of `desketch bench robust`: attacks x attackers x partitions x rules, on sketches and on raw updates.

Every cell is one run of Algorithm 1 through the shipped channel, the attackers' frames included.  "raw" is the same
rule on whole updates in f32, with the server step that did best in honest runs on the validation set.  The rules do
not know how many attack: they are set for up to 6 of 20 throughout.  Accuracy is that of the test set after the last
round; docs/robust.md says how settings were chosen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from desketch.baselines.channel import CompressedChannel
from desketch.baselines.dense import Dense
from desketch.core.files import write_durably
from desketch.errors import ConfigError
from desketch.fed import Federation, make_optimizer, run
from desketch.fed.aggregation import Aggregator
from desketch.fed.robust import parse_rule
from desketch.fed.rounds import Observer, RoundRecord
from desketch.hostile.attacks import ATTACKS, corrupt, flip_labels
from desketch.keys import Key
from desketch.tasks import RunConfig, Setup, prepare

__all__ = ["RULES", "Bed", "Cell", "cells", "measure"]

RULES = ("none", "norm-bound", "rfa", "krum:num_malicious_nodes=6", "centred-clip", "trimmed-mean:beta=0.3")
RAW_STEP = 4.0  # of 1, 2, 4, 8 with and without momentum, 25 rounds of 10 local steps


@dataclass(frozen=True, kw_only=True)
class Bed:
    """What is trained, by whom, for how long."""

    task: str = "digits"
    model: str = "mlp:64"
    clients: int = 20
    rounds: int = 30
    local_steps: int = 10
    compression: float = 30.0
    codec: str = "sign1"

    def config(self, cell: Cell) -> RunConfig:
        """The run of one cell; clients send each update as it is, so that raw updates are under the same attack."""
        return RunConfig(
            **asdict(self),
            partition=cell.partition,
            robust=cell.rule,
            seed=cell.seed,
            evaluate_every=self.rounds,
            client_momentum=0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run; an honest one has no attack and no attackers.  The seed is of everything, who attacks included."""

    seed: int
    partition: str
    attack: str | None
    attackers: int
    rule: str
    domain: str  # "sketch" or "raw"


def cells(
    *,
    seeds: tuple[int, ...] = (0,),
    partitions: tuple[str, ...],
    attackers: tuple[int, ...],
    attacks: tuple[str, ...],
    rules: tuple[str, ...],
) -> Iterator[Cell]:
    """All runs, seed by seed, honest ones first."""
    unknown = [attack for attack in attacks if attack not in ATTACKS]
    if unknown:
        raise ConfigError(f"unknown attack {unknown[0]!r}; choose of {', '.join(ATTACKS)}")
    settings = [(None, 0), *((attack, count) for count in attackers for attack in attacks)]
    for seed, (attack, count), partition in product(seeds, settings, partitions):
        for rule, domain in product(rules if attack != "absent" else rules[:1], ("sketch", "raw")):
            yield Cell(seed=seed, partition=partition, attack=attack, attackers=count, rule=rule, domain=domain)


def measure(
    bed: Bed, wanted: list[Cell], path: Path | None, tell: Callable[[int, dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Run what ``path`` does not hold yet; a row is written as soon as it is known."""
    rows = _read(path, bed)
    known = {_key(row) for row in rows}
    setups: dict[tuple[int, str], Setup] = {}
    for place, cell in enumerate(wanted):
        if _key(asdict(cell)) in known:
            continue
        data = cell.seed, cell.partition
        if data not in setups:
            setups[data] = prepare(bed.config(cell))
        rows.append({**asdict(cell), **_run(bed, setups[data], cell)})
        if path is not None:
            write_durably(path, json.dumps({"bed": asdict(bed), "rows": rows}, indent=1) + "\n")
        tell(place, rows[-1])
    return rows


def _run(bed: Bed, base: Setup, cell: Cell) -> dict[str, Any]:
    started = time.process_time()
    setup = replace(base, config=bed.config(cell))
    bad = frozenset(np.random.default_rng(cell.seed).permutation(bed.clients)[: cell.attackers].tolist())
    if cell.attack == "label-flip":
        classes = int(setup.task.y_train.max()) + 1
        data = [flip_labels(client, classes) if client.client in bad else client for client in setup.clients]
        setup = replace(setup, clients=data)
    federation = setup.federation() if cell.domain == "sketch" else _raw(setup, cell.rule)
    if cell.attack is not None:
        federation.clients = corrupt(federation.clients, bad, cell.attack, cell.seed)
    seen = _Seen()
    run(federation, rounds=bed.rounds, observer=seen)
    metrics = seen.records[-1].metrics
    return {
        "accuracy": metrics["accuracy"],
        "val_accuracy": metrics["val_accuracy"],
        "limited": sum(len(record.limited) for record in seen.records),
        "refused": sum(len(record.refused) for record in seen.records),
        "void": sum(record.void is not None for record in seen.records),
        "cpu_seconds": round(time.process_time() - started, 2),
    }


def _raw(setup: Setup, rule: str) -> Federation:
    """FedAvg on whole updates under the same rule."""
    d = setup.model.d
    aggregator = Aggregator(parse_rule(rule), sizes=setup.sizes)
    dense = Dense(d=d, codec="f32")
    channel = CompressedChannel(
        name="raw", up=dense, down=dense, key=Key(setup.config.seed), aggregator=aggregator, agreed=setup.sizes
    )
    return replace(setup.federation(channel=channel), optimizer=make_optimizer("momentum", eta_global=RAW_STEP))


class _Seen(Observer):
    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def on_round(self, record: RoundRecord) -> None:
        self.records.append(record)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("seed", "partition", "attack", "attackers", "rule", "domain"))


def _read(path: Path | None, bed: Bed) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["bed"] != asdict(bed):
        raise ConfigError(f"{path} holds the rows of another bed, {kept['bed']}; choose another file")
    return list(kept["rows"])
