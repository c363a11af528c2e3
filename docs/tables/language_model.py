"""Tables of docs/transformers.md and docs/ddp.md from benchmarks/results/language_model.json."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

NAMES = {
    "alone": "**alone, nothing sent**",
    "ddp": "DDP AdamW, every gradient",
    "diloco": "DiLoCo f32",
    "diloco-int4": "DiLoCo int4",
    "diloco-int8": "DiLoCo int8",
    "sparseloco": "SparseLoCo",
    "sketch": "sketch",
    "signs": "one bit with memory",
    "gossip": "one bit, CHOCO gossip",
    "powersgd": "PowerSGD",
    "hook": "DDP hook",
    "demo": "DeMo",
    "fedadam": "FedAdam",
    "eden": "EDEN",
    "topk": "top-k",
    "stc": "STC",
    "fetchsgd": "FetchSGD",
    "decomfl": "DeComFL",
}


WORDS = {
    "compression": " {:g}x",
    "share": " {:.1%}",
    "density": " {:.1%}",
    "gamma": " gamma={:g}",
    "rank": " r={:g}",
    "lr": " lr {:g}",
    "eta_local": " eta {:g}",
}
KINDS = {
    ("weigh", "0.5"): ", tensors weighed by rms",
    ("weigh", "0.25"): ", tensors weighed",
    ("overlap", "1"): ", overlapped",
    ("optimizer", "sgd"): ", plain server steps",
    **{("codec", code): f", {code} up" for code in ("trellis1", "trellis2", "trellis3")},
    **{("codec_down", code): f", {code} down" for code in ("trellis1", "trellis2", "trellis3")},
}
SEARCHED_TO, LONG_TO = (1.95, 1.85, 1.8), (1.8, 1.7)  # validation losses below that of a worker alone


def long(result: dict[str, Any]) -> str:
    """The 0.46M-parameter net after 5M tokens."""
    return _table(_long(result))


def largest(result: dict[str, Any]) -> str:
    """The 2M-parameter net after 5M tokens."""
    return _table([row for row in result["rows"] if row["layers"] == 6])


def search(result: dict[str, Any]) -> str:
    """The 0.11M-parameter net after 4M tokens, on which settings were chosen."""
    return _table(_searched(result))


def eight(result: dict[str, Any]) -> str:
    """The same net with eight workers."""
    return _table([row for row in result["rows"] if row["steps"] == 4000 and row["world"] == 8])


def ddp(result: dict[str, Any]) -> str:
    """What DDP's hooks do on the net of the search, beside the outer step and one worker alone."""
    names = ("alone", "ddp", "powersgd", "hook", "sketch:compression=2.5,every=60,outer_momentum=0.7,outer_lr=1.0")
    rows = [row for row in _searched(result) if row["row"].startswith(names) and "overlap" not in row["row"]]
    return _table(rows)


def to_loss(result: dict[str, Any]) -> str:
    """The fewest bytes to a loss on the net of the search."""
    return _to_loss(_searched(result), SEARCHED_TO)


def long_to_loss(result: dict[str, Any]) -> str:
    """The fewest bytes to a loss on the larger net."""
    return _to_loss(_long(result), LONG_TO)


def _to_loss(rows: list[dict[str, Any]], targets: Sequence[float]) -> str:
    """The fewest bytes a parameter with which each method was measured to reach a loss, the mean over its seeds."""
    lines = ["| validation loss | method | every | bytes a parameter | got | seeds | times the sketch's |"]
    lines.append("|---:|---|---:|---:|---:|---:|---:|")
    for target in targets:
        best: dict[str, tuple[float, list[dict[str, Any]]]] = {}
        for cells in _groups(rows):
            name, spent = _parse(cells[0]["row"])[0], cells[0]["bytes_per_parameter"]
            reached = fmean(cell["validation"][0] for cell in cells) <= target
            if reached and spent and (name not in best or spent < best[name][0]):
                best[name] = (spent, cells)
        for name, (spent, cells) in sorted(best.items(), key=lambda item: item[1][0]):
            times = "" if name == "sketch" else f"{spent / best['sketch'][0]:.1f}"
            settings = _parse(cells[0]["row"])[1]
            lines.append(
                f"| {target:g} | {_what(name, settings)} | {settings.get('every', '')} | {spent:.3g} "
                f"| {_loss(cells, 'validation')} | {len(cells)} | {times} |"
            )
    return "\n".join(lines)


def _long(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in result["rows"] if row["steps"] == 5000 and row["shards"] == "iid" and row["layers"] == 4]


def _searched(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        row
        for row in result["rows"]
        if row["steps"] == 4000 and row["shards"] == "iid" and row["world"] == 4 and not row["link"]
    ]


def two_texts(result: dict[str, Any]) -> str:
    """Two workers on each of two texts, the net of the search."""
    return _table([row for row in result["rows"] if row["shards"] == "text" and row["steps"] == 4000])


def long_two_texts(result: dict[str, Any]) -> str:
    """The same with the 0.46M-parameter net after 5M tokens."""
    return _table([row for row in result["rows"] if row["shards"] == "text" and row["steps"] == 5000])


def short(result: dict[str, Any]) -> str:
    """The 0.46M-parameter net after 0.8M tokens."""
    return _table([row for row in result["rows"] if row["steps"] == 800 and row["shards"] == "iid" and not row["link"]])


def said(result: dict[str, Any]) -> str:
    """README's sentence: a GPT over a thin wire, beside DiLoCo in f32 and one worker alone."""
    cells = {group[0]["row"]: group for group in _groups(_long(result))}

    def loss(name: str) -> float:
        return fmean(cell["validation"][0] for cell in cells[name])

    thin = "sketch:compression=2.5,every=300,outer_lr=1.0,outer_momentum=0.7"
    close = "sketch:compression=2.5,every=16,outer_momentum=0.8,outer_lr=1.0"
    dense = min((name for name in cells if name.startswith("diloco:")), key=loss)
    spent = {name: cells[name][0]["bytes_per_parameter"] for name in (thin, close, dense)}
    return (
        "Transformers, by the [outer step](docs/transformers.md) for torch.distributed: four workers train a character "
        f"GPT to {loss(close):.3f} nats with {spent[close]:.0f} bytes a parameter in the whole run, where DiLoCo in "
        f"f32 ends at {loss(dense):.3f} with {spent[dense]:,.0f}, and to {loss(thin):.3f} with {spent[thin]:.1f} "
        f"bytes, where one worker alone ends at {loss('alone'):.3f}."
    )


def links(result: dict[str, Any]) -> str:
    """Real ranks behind shaped links: payload beside what the interface carried, and the clock."""
    rows = [row for row in result["rows"] if row["link"]]
    target = max(row["validation"][0] for row in rows if row["row"] == "alone")
    lines = [
        f"| method | link | payload, kB | interface, kB | seconds in all | to {target:.3f} | validation |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    links = {"100kbit": "100 kbit/s", "1mbit": "1 Mbit/s", "10mbit": "10 Mbit/s"}
    for row in sorted(rows, key=lambda row: (list(links).index(row["link"]), -row["validation"][0])):
        name, settings = _parse(row["row"])
        reached = (f"{seconds:.0f}" for _, _, loss, seconds in row["curve"] if loss <= target)
        there = f"{row['curve'][-1][3]:.0f}" if name == "alone" else next(reached, "never")
        lines.append(
            f"| {_what(name, settings)} | {links[row['link']]} | {row['bytes'] / 1e3:.0f} | "
            f"{row['interface_bytes'] / 1e3:.0f} | {row['curve'][-1][3]:.0f} | {there} | {row['validation'][0]:.3f} |"
        )
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| method | every | outer lr, momentum | rounds | bytes a parameter | validation | test | seeds |"]
    lines.append("|---|---:|---|---:|---:|---:|---:|---:|")
    lines += map(_line, _groups(rows))
    return "\n".join(lines)


def _groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The seeds of each row together, from few bytes to many."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["row"], row["warmup"], row["engine"], row["link"], row["world"]), []).append(row)
    return sorted(groups.values(), key=lambda cells: (cells[0]["bytes_per_parameter"], cells[0]["row"]))


def _loss(cells: list[dict[str, Any]], part: str) -> str:
    """Mean and standard deviation over the seeds."""
    losses = [cell[part][0] for cell in cells]
    return f"{fmean(losses):.3f}" + (f" ± {stdev(losses):.3f}" if len(losses) > 1 else "")


def _line(cells: list[dict[str, Any]]) -> str:
    first = cells[0]
    name, settings = _parse(first["row"])
    what = _what(name, settings)
    outer = f"{first['outer_lr']:g}, {first['outer_momentum']:g}" if "outer_lr" in first else ""
    return (
        f"| {what} | {settings.get('every', '')} | {outer} | {first['rounds'] or ''} | "
        f"{first['bytes_per_parameter']:.3g} | {_loss(cells, 'validation')} | {_loss(cells, 'test')} | {len(cells)} |"
    )


def _what(name: str, settings: dict[str, str]) -> str:
    sizes = "".join(word.format(float(settings[key])) for key, word in WORDS.items() if key in settings)
    return NAMES[name] + sizes + "".join(word for setting, word in KINDS.items() if setting in settings.items())


def _parse(row: str) -> tuple[str, dict[str, str]]:
    name, _, rest = row.partition(":")
    pairs = (item.partition("=")[::2] for item in rest.split(",") if item)
    return name, dict(pairs)
