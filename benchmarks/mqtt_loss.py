"""QoS 0 with repeats by the rounds, against QoS 1, when messages are lost: seconds and bytes of a round.

``python benchmarks/mqtt_loss.py`` writes the part "loss" of ``benchmarks/results/mqtt.json``.  Three clients reach
their broker through the fault proxy of the tests, which drops a share of the publishes, each way: silently, as a bridge
or a full queue does, or together with the connection they were on, as TCP does.  A lost message is the only thing that
takes time here: local work is two steps of a softmax model.  Both ways have the rounds' repeats, after a second here,
since a message that is dropped on a standing connection is not delivered again by MQTT.  Bytes are those of the
clients' sockets as the kernel counted them, headers and acknowledgements too; in the clear, since the proxy reads MQTT.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from mqtt_links import results, write

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "integrations" / "mqtt")]

from fault_proxy import FaultProxy  # noqa: E402
from mqtt_bed import CLIENTS, Broker, Counted, Threads, serve  # noqa: E402

ROUNDS, REPEATS, REPEAT_AFTER, DEADLINE = 6, 3, 1.0, 15.0
KINDS = {"silently": "lost", "with the connection": "cut_off"}
SHARES = (0.0, 0.05, 0.2)


def one(qos: int, kind: str, share: float, seed: int) -> tuple[float, float, int]:
    """Seconds and bytes of a round, over one run, and how many replies were missing at a round's deadline."""
    with (
        tempfile.TemporaryDirectory(prefix="loss-") as folder,
        Broker(Path(folder), secure=False) as broker,
        FaultProxy(broker.port, seed=seed, **{kind: share}) as proxy,
    ):
        parties = [Counted(client) for client in range(CLIENTS)]
        clients = [broker.client(n, party.answer, port=proxy.port, qos=qos) for n, party in enumerate(parties)]
        with Threads(*clients) as threads, broker.carrier(qos=qos) as carrier:
            started = time.monotonic()
            rows, _ = serve(carrier, rounds=ROUNDS, seconds=DEADLINE, repeat_after=REPEAT_AFTER)
            seconds = time.monotonic() - started
            moved = sum(sum(client.link.traffic()) for client in clients)
        if threads.failures:
            raise SystemExit(f"a run at {share:.0%} {kind}, QoS {qos}, ended with {threads.failures}")
    return seconds / ROUNDS, moved / ROUNDS, sum(CLIENTS - row["participants"] for row in rows)


def summary(runs: list[tuple[float, float, int]]) -> dict[str, Any]:
    """Medians over the runs, and the runs."""
    seconds, moved, missing = zip(*runs, strict=True)
    return {
        "seconds_per_round": round(median(seconds), 3),
        "bytes_per_round": round(median(moved)),
        "missing": sum(missing),
        "seconds_of_runs": [round(one, 3) for one in seconds],
        "bytes_of_runs": [round(one) for one in moved],
    }


def main() -> None:
    """Measure all, the two ways in turn; what is done is kept after every seed."""
    found: dict[str, list[tuple[float, float, int]]] = {}
    cases = [(name, share) for name in KINDS for share in SHARES if share or name == "silently"]
    facts = {"command": "python benchmarks/mqtt_loss.py", "clients": CLIENTS, "rounds": ROUNDS, "deadline": DEADLINE}
    for seed in range(REPEATS):
        for name, share in cases:
            for qos in (0, 1):
                where = f"{share:.0%} {name}, QoS {qos}" if share else f"none, QoS {qos}"
                found.setdefault(where, []).append(one(qos, KINDS[name], share, seed))
                print(where, found[where][-1], flush=True)
        document = results()
        cells = {where: summary(runs) for where, runs in found.items()}
        document["loss"] = facts | {"runs": seed + 1, "repeat_after": REPEAT_AFTER, "cells": cells}
        write(document)


if __name__ == "__main__":
    main()
