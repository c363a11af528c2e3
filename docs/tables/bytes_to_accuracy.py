"""Tables of docs/baselines.md and README from benchmarks/results/bytes_to_accuracy.json."""

from __future__ import annotations

from typing import Any

# part -> (what, least times fewer bytes than fedavgm, most times its rounds, least times fewer than the best baseline)
MARKS: dict[str, tuple[str, float | None, float | None, float | None]] = {
    "headline": ("MLP 784-512-10, 10 clients, K = 5", 500, 3, 10),
    "k20": ("MLP 784-512-10, 10 clients, K = 20, untuned", 1000, 2, None),
    "k20-tuned": ("MLP 784-512-10, 10 clients, K = 20, tuned for bytes", 1000, None, 10),
    "k100": ("MLP 784-512-10, 10 clients, K = 100", 500, 3, 5),
    "noniid": ("MLP 784-512-10, Dirichlet 0.3, 10 of 50 clients, K = 20, untuned", 300, None, None),
    "noniid-tuned": ("MLP 784-512-10, Dirichlet 0.3, 10 of 50 clients, K = 20, tuned for bytes", None, None, 5),
    "cnn": ("CNN, d = 156k, 5 clients, K = 20, untuned", 300, None, None),
    "cnn-tuned": ("CNN, d = 156k, 5 clients, K = 20, tuned for bytes", None, None, 5),
    "wide": ("MLP 784-2048-10, d = 1.6M, 5 clients, K = 20, untuned", 2000, None, None),
    "wide-tuned": ("MLP 784-2048-10, d = 1.6M, 5 clients, K = 20, tuned for bytes", None, None, 5),
    "k20-sooner": ("MLP 784-512-10, 10 clients, K = 20, sooner than alone", 1000, None, 10),
    "k100-sooner": ("MLP 784-512-10, 10 clients, K = 100, sooner than alone", 500, 3, 5),
    "cnn-sooner": ("CNN, d = 156k, 5 clients, K = 20, sooner than alone", 300, None, 5),
    "wide-sooner": ("MLP 784-2048-10, d = 1.6M, 5 clients, K = 20, sooner than alone", 2000, None, 5),
    "k5-86": ("MLP 784-512-10, 10 clients, K = 5, to 86%", None, None, 5),
    "digits": ("digits to 95%, MLP 64-64-10, 10 clients, K = 5", None, None, 5),
}

SHOWN = ("headline", "k20", "k20-sooner", "noniid", "cnn", "wide")  # in README

WHERE = {  # where more than FedAvg was measured, in a sentence
    "headline": "at K = 5",
    "k20-tuned": "at K = 20",
    "k100": "at K = 100",
    "noniid-tuned": "under Dirichlet 0.3",
    "wide-tuned": "on the wide MLP",
    "cnn-tuned": "on the CNN",
    "k5-86": "at K = 5 to 86%",
    "digits": "on the digits' small net",
    "k20-sooner": "where both must be sooner than alone at K = 20",
    "k100-sooner": "likewise at K = 100",
    "wide-sooner": "likewise on the wide MLP",
    "cnn-sooner": "likewise on the CNN",
}


def marks(result: dict[str, Any]) -> str:
    """What was aimed for and what was got."""
    lines = ["| Fashion-MNIST to 84%, or what is said | mark | got [95%] | seeds | reached |", "|---|---|---|---:|---|"]
    for name, (what, fewer, slower, best) in MARKS.items():
        if name in result["parts"]:
            lines += _mark_rows(what, result["parts"][name], fewer, slower, best)
    return "\n".join(lines)


def savings(result: dict[str, Any]) -> str:
    """README's table: one row a federation, bytes and rounds to the same accuracy beside a tuned FedAvg."""
    lines = [
        "| Fashion-MNIST to {:.0%} test accuracy | FedAvg + momentum, tuned | desketch | fewer bytes [95 % interval] |",
        "|---|---:|---:|---:|",
    ]
    for name in SHOWN:
        what, part = MARKS[name][0], result["parts"].get(name, {"times_fewer_bytes": {}})
        times = part["times_fewer_bytes"].get("fedavgm")
        if times:
            rows = {row["method"]: row for row in part["methods"]}
            peer, ours = rows["fedavgm"], rows["desketch"]
            lines.append(f"| {what}{_caveat(ours)} | {_cost(peer)} | {_cost(ours)} | {_times(times)} |")
    return "\n".join(lines).format(result["parts"]["headline"]["target"]) + f"\n\n{_closest(result)}"


def _closest(result: dict[str, Any]) -> str:
    """The method that comes nearest, wherever more than FedAvg was measured."""
    found: dict[str, list[str]] = {}
    for name, where in WHERE.items():
        part = result["parts"].get(name, {"times_fewer_bytes": {}, "methods": []})
        counted = {row["method"] for row in part["methods"] if _counts(part, row)}
        times = {other: factor for other, factor in part["times_fewer_bytes"].items() if factor and other in counted}
        if times.keys() - {"fedavgm"}:
            nearest = min(times, key=lambda other: times[other]["mean"])
            unit = "" if nearest in found else " times the bytes of desketch"
            found.setdefault(nearest, []).append(f"{times[nearest]['mean']:.1f}{unit} {where}")
    said = [f"{name}, with {', '.join(cases)}" for name, cases in found.items()]
    return f"Of everything else that was measured, the closest is {'; then '.join(said)}." if said else ""


def _caveat(row: dict[str, Any]) -> str:
    """What a row was measured with, where that is not today's code and matters."""
    if "earlier" in row:
        return " (earlier code)"
    small = row.get("bytes") and row["bytes"] / row["rounds"] < 1e5  # headers matter
    return " (longer frames)" if small and row.get("frames") != "two bytes" else ""


def _cost(row: dict[str, Any]) -> str:
    size = f"{row['bytes'] / 1e6:,.0f} MB" if row["bytes"] >= 1e6 else f"{row['bytes'] / 1e3:,.3g} kB"
    return f"{size}, {row['rounds']:g} rounds"


def headline(result: dict[str, Any]) -> str:
    """Every method on the headline federation."""
    return methods(result, "headline")


def others(result: dict[str, Any]) -> str:
    """The remaining federations."""
    names = [name for name in MARKS if name != "headline" and name in result["parts"]]
    return "\n\n".join(f"**{MARKS[name][0]}**\n\n{methods(result, name)}" for name in names)


def methods(result: dict[str, Any], name: str) -> str:
    """One row a method: bytes, rounds, seeds that held the target, and how many times fewer bytes desketch needs."""
    part = result["parts"][name]
    lines = [
        "| method | kB per client, up + down [95%] | rounds | held | setting | desketch needs |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for row in sorted(part["methods"], key=_place, reverse=True):
        times = part["times_fewer_bytes"].get(row["method"])
        rounds = "-" if row["rounds"] is None else f"{row['rounds']:g}"
        lines.append(
            f"| {row['method']}{_caveat(row)} | {_kilobytes(row)} | {rounds} | {row['reached']}/{row['seeds']} "
            f"| {_setting(row)} | {_times(times) if times else ''} |"
        )
    return "\n".join(lines)


def _place(row: dict[str, Any]) -> float:
    """Rows go from many bytes to few; alone, with none, is the first, and what never held the target the next."""
    return float("inf") if row["bytes"] in (None, 0) else float(row["bytes"])


def _mark_rows(
    what: str, part: dict[str, Any], fewer: float | None, slower: float | None, best: float | None
) -> list[str]:
    rows = {row["method"]: row for row in part["methods"]}
    ours = rows.get("desketch")
    if not ours or ours["bytes"] is None:
        return []
    seeds, lines = f"{ours['reached']}/{ours['seeds']}", []
    times = part["times_fewer_bytes"].get("fedavgm")
    rounds = ours["rounds"] / rows["fedavgm"]["rounds"] if times else 0.0
    if fewer and times:
        got = f"{_times(times)} at {rounds:.2f}x its rounds"
        lines.append((f"{fewer:g}x fewer bytes than fedavgm", got, times["mean"] >= fewer))
    if slower and times:
        lines.append((f"at most {slower:g}x its rounds", f"{rounds:.2f}x", rounds <= slower))
    others = {n: row["bytes"] for n, row in rows.items() if _counts(part, row) and n not in ("desketch", "fedavgm")}
    if best and others:
        name = min(others, key=lambda n: others[n])
        ratio = part["times_fewer_bytes"][name]
        ahead = " that is sooner than alone" if _sooner(part) else ""
        lines.append((f"{best:g}x fewer than the best baseline{ahead} ({name})", _times(ratio), ratio["mean"] >= best))
    never = [n for n, row in rows.items() if row["bytes"] is None and n != "alone"]
    if best and not others and never:
        names = ", ".join(f"{n} ({_last(rows[n])} in the end)" for n in never)
        lines.append((f"{best:g}x fewer than the best baseline", f"never held by {names}", True))
    if "alone" in rows:
        lines.append(("not behind alone", *_against_alone(rows["alone"], ours)))
    return [_row(what + _caveat(ours) if i == 0 else "", *line[:2], seeds, line[2]) for i, line in enumerate(lines)]


def _sooner(part: dict[str, Any]) -> bool:
    """Whether methods were tuned to be ahead of clients alone."""
    return "sooner" in part.get("tuned_for", "")


def _counts(part: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether a method holds the target at a price, and, where that is asked for, sooner than clients alone."""
    alone = next((other["rounds"] for other in part["methods"] if other["method"] == "alone"), None)
    late = _sooner(part) and alone is not None and row["rounds"] is not None and row["rounds"] >= alone
    return bool(row["bytes"]) and not late


def _against_alone(alone: dict[str, Any], ours: dict[str, Any]) -> tuple[str, bool]:
    """A lone client that holds the target, in no more rounds, for nothing, is ahead."""
    if alone["rounds"] is None:
        return f"alone never holds it ({_last(alone)} in the end)", True
    return f"alone holds it after {alone['rounds']:g} rounds, desketch {ours['rounds']:g}", ours["rounds"] < alone[
        "rounds"
    ]


def _last(row: dict[str, Any]) -> str:
    """The metric at the end of the runs, for people."""
    return f"{100 * row['last_accuracy']:.1f}%"


def _row(what: str, mark: str, got: str, seeds: str, reached: bool) -> str:
    return f"| {what} | {mark} | {got} | {seeds} | {'yes' if reached else 'no'} |"


def _times(times: dict[str, float | None]) -> str:
    interval = f" [{times['low']:,.0f}, {times['high']:,.0f}]" if times["low"] and times["mean"] >= 20 else ""
    if times["low"] and times["mean"] < 20:
        interval = f" [{times['low']:.1f}, {times['high']:.1f}]"
    return (f"{times['mean']:,.0f}x" if times["mean"] >= 20 else f"{times['mean']:.1f}x") + interval


def _kilobytes(row: dict[str, Any]) -> str:
    if row["method"] == "alone":
        return f"0 ({_last(row)} in the end, mean over clients)"
    if row["bytes"] is None:
        within = f" within {row['within']} rounds" if "within" in row else ""
        return f"never in {row['seeds']} seeds{within} ({_last(row)})"
    interval = f" [{row['bytes_low'] / 1e3:,.1f}, {row['bytes_high'] / 1e3:,.1f}]" if row["bytes_high"] else ""
    return f"{row['bytes'] / 1e3:,.1f}{interval}"


def _setting(row: dict[str, Any]) -> str:
    hidden = ("optimizer", "codec", "codec_down")
    setting = {name: value for name, value in row["setting"].items() if name not in hidden}
    shown = [f"{name} {1 / value:g}⁻¹" if name == "density" else f"{name} {value}" for name, value in setting.items()]
    if "codec_down" in row["setting"]:
        shown.insert(1, f"{row['setting']['codec']} up, {row['setting']['codec_down']} down")
    shown += [f"mean of {row['average_last']}"] if row["average_last"] > 1 else []
    return ", ".join([*shown, f"tuned on {row['tuning_seeds']} seeds"] if row.get("tuning_seeds", 0) > 1 else shown)
