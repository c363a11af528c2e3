"""Ten thousand TLS clients on one broker, and a round of 1 kB with each: CPU and memory per client.

``python benchmarks/mqtt_crowd.py --clients 10000`` writes the cell "crowd" of ``benchmarks/results/mqtt.json``.  The
clients are light sessions of a load generator (a process with asyncio and MQTT packets written by hand) with a
certificate each, that answer with 1 kB whose first byte is the order's: the round.  Broker, access list and carrier are
the shipped ones.  CPU times are the kernel's, of each process.  What `ServerSession` does with as many replies of 1 kB
(orders, checks, decoding, averaging, the step) is measured in this process, on replies that were made before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from desketch.core.files import write_durably
from desketch.integrations.mqtt.address import Address
from desketch.integrations.mqtt.broker import mosquitto, write_broker
from desketch.integrations.mqtt.carrier import MqttCarrier
from desketch.integrations.mqtt.credentials import make_credentials
from desketch.integrations.processes import Processes, free_port
from desketch.session.agreement import Agreement
from desketch.session.identity import Identities
from desketch.session.protocol import Reply, State, half
from desketch.session.server import Outcome, ServerSession
from desketch.session.short import pack_reply
from desketch.wire import Wire

RESULTS = Path(__file__).resolve().parent / "results" / "mqtt.json"
SIZE, ROUNDS, AT_ONCE, STAMP = 1000, 3, 64, 4


def packet(kind: int, *parts: bytes) -> bytes:
    """An MQTT packet."""
    body = b"".join(parts)
    length, left = b"", len(body)
    while True:
        byte, left = left & 127, left >> 7
        length += bytes([byte | (128 if left else 0)])
        if not left:
            return bytes([kind]) + length + body


def text(value: str) -> bytes:
    """A string as MQTT writes it."""
    return len(value).to_bytes(2, "big") + value.encode()


def publish(topic: str, payload: bytes, *, retain: bool = False) -> bytes:
    """A publish at QoS 0."""
    return packet(0x30 | retain, text(topic), b"\0", payload)


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next packet."""
    kind, length, shift = (await reader.readexactly(1))[0], 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return kind, await reader.readexactly(length)


async def session(client: int, port: int, keys: Path, gate: asyncio.Semaphore, up: list[int]) -> None:
    """A light session: connect, say that it is there, answer every publish with 1 kB."""
    async with gate:
        own = keys / f"client-{client}"
        context = ssl.create_default_context(cafile=str(own / "ca.pem"))
        context.load_cert_chain(own / "cert.pem", own / "key.pem")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, ssl_handshake_timeout=600)
        connect = packet(0x10, text("MQTT"), b"\x05\x02", (65535).to_bytes(2, "big"), b"\0", text(str(client)))
        topics = b"".join(text(topic) + b"\0" for topic in (f"d/{client}/o", "d/o"))
        writer.write(connect)
        await read_packet(reader)
        writer.write(packet(0x82, b"\0\1\0", topics) + publish(f"d/{client}/p", b"1", retain=True))
        await read_packet(reader)
    up.append(client)
    while True:
        kind, body = await read_packet(reader)
        if kind >> 4 == 3:
            at = 2 + int.from_bytes(body[:2], "big") + 1 + STAMP  # topic, no properties, stamp
            writer.write(publish(f"d/{client}/r", body[at : at + 1] + bytes(SIZE - 1)))


async def crowd(first: int, clients: int, port: int, keys: Path) -> None:
    """All sessions of this process, until it is stopped."""
    gate, up = asyncio.Semaphore(AT_ONCE), []
    await asyncio.gather(*(session(c, port, keys, gate, up) for c in range(first, first + clients)))


def cpu(pid: int) -> float:
    """Seconds of CPU of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def own_cpu() -> float:
    """Seconds of CPU of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(clients: int, limit: float) -> dict[str, Any]:
    """Connect the crowd, run the rounds, and divide by the clients."""
    with tempfile.TemporaryDirectory(prefix="crowd-") as temporary:
        folder, port = Path(temporary), free_port()
        make_credentials(folder / "keys", "127.0.0.1", clients)
        configuration = write_broker(folder / "broker", clients=clients, port=port, keys=folder / "keys" / "broker")
        with Processes(folder) as processes:
            processes.start("broker", [mosquitto(), "-c", str(configuration)])
            processes.wait_for_port("broker", "127.0.0.1", port)
            broker = processes.processes["broker"].pid
            empty = memory(broker)
            address = Address(host="127.0.0.1", port=port, tls=True)
            with MqttCarrier(address, credentials=folder / "keys" / "server", clients=clients) as carrier:
                before, started = cpu(broker), time.monotonic()
                half = clients // 2
                for number, (first, count) in enumerate([(0, half), (half, clients - half)]):
                    command = [
                        sys.executable,
                        __file__,
                        "--generate",
                        str(first),
                        str(count),
                        str(port),
                        str(folder / "keys"),
                    ]
                    processes.start(f"crowd {number}", command)
                while (there := len(carrier.nodes())) < clients and time.monotonic() - started < limit:
                    carrier.arrivals(1.0)
                connected = time.monotonic() - started
                outcome = {
                    "clients": clients,
                    "held": there,
                    "seconds_connecting": round(connected, 1),
                    "broker_us_per_connection": round(1e6 * (cpu(broker) - before) / max(there, 1)),
                    "broker_bytes_per_client": round((memory(broker) - empty) / max(there, 1)),
                }
                return outcome | rounds(carrier, broker, there)


def rounds(carrier: MqttCarrier, broker: int, clients: int) -> dict[str, Any]:
    """Some rounds with everybody; the CPU of each party per client and round."""
    server_before, broker_before, started = own_cpu(), cpu(broker), time.monotonic()
    answered, others = [], 0
    for t in range(ROUNDS):
        order = bytes([t]) + bytes(SIZE - 1)
        for node in carrier.nodes():
            carrier.send(node, order, carrier.now() + 600)
        came: set[int] = set()
        deadline = carrier.now() + 120
        while len(came) < clients and carrier.now() < deadline:
            for arrival in carrier.arrivals(1.0):
                if arrival.data[0] == t and arrival.node not in came:
                    came.add(arrival.node)
                else:
                    others += 1
        answered.append(len(came))
    each = 1e6 / (clients * ROUNDS)
    return {
        "rounds": ROUNDS,
        "bytes_a_message": SIZE,
        "answered": answered,
        "replies_twice_or_of_other_rounds": others,
        "still_held": len(carrier.nodes()),
        "carrier_us_per_client_and_round": round(each * (own_cpu() - server_before), 1),
        "broker_us_per_client_and_round": round(each * (cpu(broker) - broker_before), 1),
        "seconds_per_round": round((time.monotonic() - started) / ROUNDS, 2),
    }


def session_part(clients: int) -> dict[str, Any]:
    """CPU of the server's session per client, in a round after the first: short orders, short replies."""
    torch.set_num_threads(1)
    b = 8 * SIZE
    agreement = Agreement(
        name="crowd", seed=0, names=["w"], shapes=[[30 * b]], wire=Wire(b=b, codec="sign1"), known_weights=True
    )
    sizes = dict.fromkeys(range(clients), 1.0)
    server = ServerSession(
        agreement, torch.zeros(agreement.d), sizes=sizes, identities=Identities(clients, {c: c for c in sizes})
    )
    channel, own, rng = agreement.channel(sizes=sizes), [], torch.Generator().manual_seed(0)
    for t in (1, 2):
        replies, digest = [], half(server.digest())
        for first in range(0, clients, 500):
            who = list(range(first, min(first + 500, clients)))
            frames = channel.encode_sketches(
                t, torch.randn(len(who), b, generator=rng), clients=who, weights=[1.0] * len(who)
            )
            for client, frame in zip(who, frames, strict=True):
                reply = Reply(
                    run=agreement.run,
                    d=agreement.d,
                    t=t,
                    state=State.TRAINED,
                    client=client,
                    version=t - 1,
                    digest=digest,
                    seconds=0.0,
                    frame=frame,
                    reason="",
                )
                replies.append(reply.pack() if t == 1 else pack_reply(reply) or b"")
        before = own_cpu()
        for node in range(clients):
            server.order(node)
        for node, data in enumerate(replies):
            if server.receive(node, data) is not Outcome.DONE:
                raise SystemExit(f"the reply of {node} was not taken")
        report = server.close()
        own.append(1e6 * (own_cpu() - before) / clients)
        if len(report.participants) != clients:
            raise SystemExit(f"{len(report.participants)} of {clients} took part: {list(report.refused.values())[:1]}")
    return {"clients": clients, "b": b, "reply_bytes": len(replies[0]), "us_per_client_and_round": round(own[1], 1)}


def main() -> None:
    """Measure, or be a part of the crowd."""
    if "--generate" in sys.argv:
        first, count, port, keys = sys.argv[2:6]
        asyncio.run(crowd(int(first), int(count), int(port), Path(keys)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds to wait for all to connect")
    parser.add_argument("--dry", action="store_true", help="do not write the result")
    args = parser.parse_args()
    outcome: dict[str, Any] = {"session": session_part(args.clients)}
    print(json.dumps(outcome), flush=True)
    outcome = measure(args.clients, args.limit) | outcome | {"load": [round(number, 1) for number in os.getloadavg()]}
    outcome["server_us_per_client_and_round"] = round(
        outcome["carrier_us_per_client_and_round"] + outcome["session"]["us_per_client_and_round"], 1
    )
    print(json.dumps(outcome))
    if not args.dry:
        document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": {}}
        document["crowd"] = {"command": f"python benchmarks/mqtt_crowd.py --clients {args.clients}", **outcome}
        write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
