"""Tables of docs/flower.md from benchmarks/results/thin_wire.json."""

from __future__ import annotations

from typing import Any

RATES = ("10 Mbit/s", "1 Mbit/s", "100 kbit/s")
METHODS = ("fedavg", "fedavg-f16", "desketch int4", "desketch sign1")
MARKS = {"1 Mbit/s": 5.0, "100 kbit/s": 20.0}


def cells(result: dict[str, Any]) -> str:
    """One row a cell that was run."""
    lines = [
        "| link | method | rounds | seconds to target | times FedAvg | interface, MB | frames, MB | load |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for rate in RATES:
        for method in METHODS:
            cell = result["cells"].get(f"{rate}, {method}")
            if cell is None:
                continue
            moved = (cell["interface_up"] + cell["interface_down"]) / 1e6
            frames = (cell["wire_up"] + cell["wire_down"]) / 1e6
            lines.append(
                f"| {rate} | {method} | {cell['rounds']} | {_seconds(cell)} | {_times(result, rate, method)} "
                f"| {moved:.2f} | {f'{frames:.3f}' if frames else '-'} | {_load(cell)} |"
            )
    return "\n".join(lines)


def marks(result: dict[str, Any]) -> str:
    """The marks and what was got, by the better codec."""
    lines = ["| mark | got | reached |", "|---|---|---|"]
    for rate, mark in MARKS.items():
        if f"{rate}, fedavg" not in result["cells"]:
            continue
        got = {m: _ratio(result, rate, m) for m in METHODS if m.startswith("desketch")}
        best = max((value, m) for m, value in got.items() if value is not None)
        plain = result["cells"][f"{rate}, fedavg"]
        answer = "yes" if best[0] >= mark else "no"
        got_text = f"{best[0]:.1f}x ({best[1]})"
        if not plain["reached"]:
            got_text = (
                f"at least {got_text}: FedAvg ended after {plain['seconds']:.0f} s, {plain['rounds']} complete rounds "
                f"and {plain['accuracy']:.1%}"
            )
        half = result["cells"].get(f"{rate}, fedavg-f16")
        if half and half["reached"]:
            got_text += f"; {half['seconds'] / result['cells'][f'{rate}, {best[1]}']['seconds']:.1f}x f16 FedAvg"
        lines.append(f"| {rate}: at least {mark:g}x faster than FedAvg | {got_text} | {answer} |")
    for rate in RATES:
        for method in ("desketch sign1", "desketch int4"):
            if (share := _explained(result, rate, method)) is not None:
                answer = "yes" if abs(share - 1) <= 0.3 else "no"
                lines.append(
                    f"| {rate}, {method}: interface bytes within 30 % of frames + overhead | {share:.2f} | {answer} |"
                )
    return "\n".join(lines)


def clock(result: dict[str, Any]) -> str:
    """The thinnest link in one sentence."""
    plain, half, ours = (
        result["cells"][f"{RATES[-1]}, {method}"] for method in ("fedavg", "fedavg-f16", "desketch sign1")
    )
    f32 = f"{plain['seconds']:,.0f} s" if plain["reached"] else f"more than {plain['seconds']:,.0f} s"
    return (
        f"By the clock, with Flower over a real {RATES[-1]} link, {result['clients']} clients: "
        f"{ours['target']:.0%} after {ours['seconds']:.0f} s, where FedAvg takes {half['seconds']:,.0f} s "
        f"in half precision and {f32} in single ([Flower](docs/flower.md))."
    )


def overhead(result: dict[str, Any]) -> str:
    """What a message costs when it carries nothing."""
    lines = ["| link | up, kB a message | down, kB a message |", "|---|---:|---:|"]
    for rate in RATES:
        if cell := result["cells"].get(f"{rate}, empty"):
            up, down = (cell[f"interface_{way}"] / cell["messages"] / 1e3 for way in ("up", "down"))
            lines.append(f"| {rate} | {up:.1f} | {down:.1f} |")
    return "\n".join(lines)


def _load(cell: dict[str, Any]) -> str:
    return f"{cell['load'][0]:g}" if "load" in cell else "not kept"


def _seconds(cell: dict[str, Any]) -> str:
    return f"{cell['seconds']:.0f}" if cell["reached"] else f"not reached in {cell['seconds']:.0f}"


def _ratio(result: dict[str, Any], rate: str, method: str) -> float | None:
    """FedAvg's time over the method's; that of its complete rounds, a lower bound, where it did not arrive."""
    ours, plain = (result["cells"].get(f"{rate}, {name}") for name in (method, "fedavg"))
    if ours is None or plain is None or not ours["reached"]:
        return None
    return float(plain["seconds"] / ours["seconds"])


def _times(result: dict[str, Any], rate: str, method: str) -> str:
    ratio = _ratio(result, rate, method)
    if ratio is None:
        return "-"
    if result["cells"][f"{rate}, fedavg"]["reached"]:
        return f"{ratio:.1f}x"
    return f"at least {ratio:.1f}x" if ratio > 1 else "-"


def _explained(result: dict[str, Any], rate: str, method: str) -> float | None:
    ours, empty = (result["cells"].get(f"{rate}, {name}") for name in (method, "empty"))
    if ours is None or empty is None:
        return None
    fixed = (empty["interface_up"] + empty["interface_down"]) / empty["messages"] * ours["messages"]
    return float((ours["interface_up"] + ours["interface_down"]) / (ours["wire_up"] + ours["wire_down"] + fixed))
