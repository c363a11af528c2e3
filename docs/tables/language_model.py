"""Tables of docs/transformers.md and docs/ddp.md from benchmarks/results/language_model.json."""

from __future__ import annotations

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
}


WORDS = {"compression": " {:g}x", "share": " {:.1%}", "gamma": " gamma={:g}", "rank": " r={:g}", "lr": " lr {:g}"}


def long(result: dict[str, Any]) -> str:
    """The 0.46M-parameter net after 5M tokens."""
    return _table([row for row in result["rows"] if row["steps"] == 5000 and row["shards"] == "iid"])


def search(result: dict[str, Any]) -> str:
    """The 0.11M-parameter net after 4M tokens, on which settings were chosen."""
    return _table([row for row in result["rows"] if row["steps"] == 4000 and row["shards"] == "iid"])


def two_texts(result: dict[str, Any]) -> str:
    """Two workers on each of two texts."""
    return _table([row for row in result["rows"] if row["shards"] == "text"])


def short(result: dict[str, Any]) -> str:
    """The 0.46M-parameter net after 0.8M tokens."""
    return _table([row for row in result["rows"] if row["steps"] == 800 and row["shards"] == "iid"])


def links(result: dict[str, Any]) -> str:
    """Real ranks behind shaped links: payload beside what the interface carried, and the clock."""
    lines = ["| method | every | link | payload, kB | interface, kB | seconds | validation |"]
    lines.append("|---|---:|---|---:|---:|---:|---:|")
    for row in sorted((row for row in result["rows"] if row["link"]), key=lambda row: (row["link"], row["row"])):
        name, settings = _parse(row["row"])
        lines.append(
            f"| {_what(name, settings)} | {settings.get('every', '')} | {row['link']} | {row['bytes'] / 1e3:.0f} | "
            f"{row['interface_bytes'] / 1e3:.0f} | {row['curve'][-1][3]:.0f} | {row['validation'][0]:.3f} |"
        )
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| method | every | outer lr, momentum | rounds | bytes a parameter | validation | test | seeds |"]
    lines.append("|---|---:|---|---:|---:|---:|---:|---:|")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["row"], row["warmup"], row["engine"], row["link"]), []).append(row)
    for cells in sorted(groups.values(), key=lambda cells: (cells[0]["bytes_per_parameter"], cells[0]["row"])):
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: list[dict[str, Any]]) -> str:
    first = cells[0]
    name, settings = _parse(first["row"])
    what = _what(name, settings)
    outer = f"{first['outer_lr']:g}, {first['outer_momentum']:g}" if "outer_lr" in first else ""
    losses = [sum(cell[part][0] for cell in cells) / len(cells) for part in ("validation", "test")]
    return (
        f"| {what} | {settings.get('every', '')} | {outer} | {first['rounds'] or ''} | "
        f"{first['bytes_per_parameter']:.3g} | {losses[0]:.3f} | {losses[1]:.3f} | {len(cells)} |"
    )


def _what(name: str, settings: dict[str, str]) -> str:
    return NAMES[name] + "".join(word.format(float(settings[key])) for key, word in WORDS.items() if key in settings)


def _parse(row: str) -> tuple[str, dict[str, str]]:
    name, _, rest = row.partition(":")
    pairs = (item.partition("=")[::2] for item in rest.split(",") if item)
    return name, dict(pairs)
