"""Tables of docs/mqtt.md and a sentence of README from benchmarks/results/mqtt.json."""

from __future__ import annotations

from typing import Any

TARGET = 0.84
_LOSSES = ("none", "5% silently", "20% silently", "5% with the connection", "20% with the connection")


def links(result: dict[str, Any]) -> str:
    """One row a cell: the median repeat."""
    lines = [
        "| link, settings | b | rounds | test accuracy | seconds | beyond local work (all repeats) | interface, kB | "
        "interface / messages | interface / payload | digest as in process |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, cell in result["cells"].items():
        earlier = " (earlier code)" if cell.get("earlier") else ""
        same = "yes" if cell["digest"] == cell["digest_in_process"] else "no"
        lines.append(
            f"| {name}{earlier} | {cell['b']} | {cell['rounds']} | {cell['accuracy']:.2%} | {cell['seconds']:.1f} "
            f"| {cell['seconds_beyond_local']:.1f} ({_repeats(cell)}) | {cell['interface_bytes'] / 1e3:.1f} "
            f"| {cell['interface_over_messages']:.2f} | {cell['interface_over_payload']:.2f} | {same} |"
        )
    return "\n".join(lines)


def _repeats(cell: dict[str, Any]) -> str:
    return ", ".join(f"{one['seconds_beyond_local']:.1f}" for one in cell["repeats"])


def marks(result: dict[str, Any]) -> str:
    """What was aimed for and what was got."""
    cells, crowd = result["cells"], result["crowd"]
    plain, thin, ratio = (cells[name] for name in ("100 kbit/s", "10 kbit/s", "b = 848"))
    rows = [
        _most("84 % at 100 kbit/s: seconds beyond local work", 10, plain["seconds_beyond_local"], plain),
        _most("the same: kB at the interface until 84 %", 110, plain["interface_bytes"] / 1e3, plain),
        _most("84 % at 10 kbit/s: seconds, local work included", 45, thin["seconds"], thin),
        _most("b = 848: interface / session messages", 3, ratio["interface_over_messages"]),
        _most("b = 848: interface / bare payload, one bit a number", 3, ratio["interface_over_payload"]),
        _crowd(crowd),
        _most("server CPU per client and round, us", 100, crowd["server_us_per_client_and_round"]),
    ]
    return "\n".join(["| what | mark | got | reached |", "|---|---:|---:|---|", *rows])


def _most(what: str, mark: float, got: float, cell: dict[str, Any] | None = None) -> str:
    reached = got <= mark and (cell is None or cell["reached"])
    return f"| {what} | at most {mark:g} | {got:.4g} | {'yes' if reached else 'no'} |"


def _crowd(crowd: dict[str, Any]) -> str:
    held = crowd["held"] == crowd["clients"] and all(count == crowd["clients"] for count in crowd["answered"])
    got = f"{crowd['held']:,} held, {' and '.join(f'{count:,}' for count in crowd['answered'])} answered"
    return f"| {crowd['clients']:,} clients over TLS, rounds of 1 kB | all | {got} | {'yes' if held else 'no'} |"


def crowd(result: dict[str, Any]) -> str:
    """The crowd in a sentence or two."""
    c = result["crowd"]
    split = "; ".join(f"{what} {us:.0f} us" for what, us in c["server_us_split"].items())
    same = "the digest of the same rounds in process" if c["digest_as_in_process"] else "ANOTHER digest than in process"
    return (
        f"{c['clients']:,} clients with a certificate each connected in {c['seconds_connecting']:.0f} s; rounds after "
        f"the first took {c['seconds_per_round']:.1f} s each, and ended with {same}. A client costs the broker "
        f"{c['broker_us_per_connection'] / 1e3:.1f} ms of CPU to connect, {c['broker_us_per_client_and_round']:.0f} us "
        f"a round and {c['broker_bytes_per_client'] / 1e3:.0f} kB of memory. It costs the server "
        f"{c['server_us_per_client_and_round']:.0f} us a round ({split}). The machine had two cores and other work "
        f"(load {c['load'][0]:g})."
    )


def beside(result: dict[str, Any]) -> str:
    """MQTT and Flower at 100 kbit/s, a round."""
    ours, others = result["cells"]["100 kbit/s"], result.get("beside", {})
    lines = [
        "| at 100 kbit/s | rounds measured | seconds a round | kB a round at the interface | accuracy then | load |",
        "|---|---:|---:|---:|---:|---:|",
        _a_round("desketch over MQTT, b = 3392", ours),
    ]
    names = {
        "desketch sign1": "desketch over Flower, b = 3392",
        "fedavg-f16": "FedAvg on Flower, f16",
        "fedavg": "FedAvg on Flower",
    }
    lines += [
        _a_round(f"{name}{'' if 'Flower' in name else ' on Flower'}", others[m])
        for m, name in names.items()
        if m in others
    ]
    return "\n".join(lines)


def _a_round(name: str, cell: dict[str, Any]) -> str:
    """Without the first round, which greets, where there are others."""
    moved, seconds = cell["interface_bytes_after_rounds"], cell["seconds_of_rounds"]
    if len(moved) > 1:
        kilobytes, mean = (moved[-1] - moved[0]) / (len(moved) - 1) / 1e3, sum(seconds[1:]) / (len(seconds) - 1)
    else:
        kilobytes, mean = moved[0] / 1e3, seconds[0]
    return (
        f"| {name} | {cell['rounds']} | {mean:.1f} | {kilobytes:,.1f} | {cell['accuracy']:.1%} | {cell['load'][0]:g} |"
    )


def loss(result: dict[str, Any]) -> str:
    """QoS 0 beside QoS 1."""
    facts = result["loss"]
    lines = [
        "| publishes lost | QoS 0: seconds a round | QoS 1 | QoS 0: kB a round | QoS 1 "
        "| QoS 0: replies missing | QoS 1 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in _LOSSES:
        pair = [facts["cells"][f"{name}, QoS {qos}"] for qos in (0, 1)]
        seconds = " | ".join(f"{one['seconds_per_round']:.2f}" for one in pair)
        moved = " | ".join(f"{one['bytes_per_round'] / 1e3:.2f}" for one in pair)
        missing = " | ".join(str(one["missing"]) for one in pair)
        lines.append(f"| {name} | {seconds} | {moved} | {missing} |")
    total = facts["clients"] * facts["rounds"] * facts["runs"]
    return "\n".join(lines) + (
        f"\n\nMedians of {facts['runs']} runs of {facts['rounds']} rounds with {facts['clients']} clients; missing are "
        f"replies, of {total}, that had not come at a round's deadline of {facts['deadline']:g} s."
    )


def momentum(result: dict[str, Any]) -> str:
    """Rounds to the target on validation data, by b, client momentum and average."""
    lines = [
        "| b is d over | client momentum | rounds to 84 %: the last w | mean of 3 | mean of 10 (default) "
        "| after 8 rounds: the last w |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for case in result["search"].values():
        by = {n: _first(case["averages"][n]) for n in ("1", "3", "10")}
        what = (
            f"{case['compression']:g} | {case['client_momentum']:g}"
            if "compression" in case
            else "one client alone | -"
        )
        lines.append(f"| {what} | {by['1']} | {by['3']} | {by['10']} | {case['averages']['1'][7]:.1%} |")
    return "\n".join(lines)


def _first(accuracies: list[float]) -> str:
    reached = [t for t, value in enumerate(accuracies, 1) if value >= TARGET]
    return str(reached[0]) if reached else f"> {len(accuracies)}"


def clock(result: dict[str, Any]) -> str:
    """The thin links in one sentence."""
    plain, thin = result["cells"]["100 kbit/s"], result["cells"]["10 kbit/s"]
    alone = sorted(_first(of) for of in result["search"]["alone"]["averages"].values())
    return (
        f"Over MQTT the same federation has {TARGET:.0%} after {plain['seconds']:.0f} s at 100 kbit/s "
        f"({plain['interface_bytes'] / 1e6:.2f} MB at the broker's interface, TLS and all) and after "
        f"{thin['seconds']:.0f} s at 10 kbit/s ({thin['interface_bytes'] / 1e6:.2f} MB, b = {thin['b']}), with "
        f"settings for short runs; that is {plain['rounds']} and {thin['rounds']} rounds, where one client alone, with "
        f"no bytes, takes {alone[0]} to {alone[-1]} on validation data ([MQTT](docs/mqtt.md))."
    )
