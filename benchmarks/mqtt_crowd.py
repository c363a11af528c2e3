"""Ten thousand TLS clients on one broker, and rounds of 1 kB with each: CPU and memory per client.

``python benchmarks/mqtt_crowd.py --clients 10000`` writes the cell "crowd" of ``benchmarks/results/mqtt.json``.  The
clients are light sessions of a load generator (two processes with asyncio and MQTT packets written by hand) with a
certificate each, that answer every order with the reply that its round needs: it was made beforehand, by a server of
the same run in this process, which also says what the digest must be.  Broker, access list, carrier, rounds and session
are the shipped ones.  CPU times are the kernel's; the server's is split into the thread that reads and writes the
connection, closing the round (decode, judge, average, step), and what is left (orders, checks, books).
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
from desketch.integrations.mqtt.carrier import REPEAT_SECONDS, MqttCarrier
from desketch.integrations.mqtt.credentials import make_credentials
from desketch.integrations.processes import Processes, free_port
from desketch.session.agreement import Agreement
from desketch.session.identity import Identities
from desketch.session.protocol import Reply, State
from desketch.session.report import RoundReport
from desketch.session.rounds import Rounds
from desketch.session.server import Outcome, ServerSession
from desketch.session.short import pack_reply
from desketch.wire import Wire

RESULTS = Path(__file__).resolve().parent / "results" / "mqtt.json"
SIZE, ROUNDS, AT_ONCE, STAMP = 1000, 3, 64, 4  # rounds after the first, which is all greetings


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


def answer(order: bytes, client: int, replies: Path, files: dict[str, Any]) -> bytes:
    """The prepared reply to an order: its second byte is the round's, unless it is in full."""
    name = "1" if order[0] == 0xDE else f"{order[1]}{'' if order[0] & 1 else ' synced'}"
    if name not in files:
        data = (replies / name).read_bytes()
        files[name] = data, len(data) // int((replies / "clients").read_text())
    data, size = files[name]
    return data[client * size : (client + 1) * size]


async def session(
    client: int, port: int, folder: Path, gate: asyncio.Semaphore, up: list[int], files: dict[str, Any]
) -> None:
    """A light session: connect, say that it is there, answer every order."""
    keys = folder / "keys"
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
            if len(body) > at:  # else the run is over
                writer.write(publish(f"d/{client}/r", answer(body[at:], client, folder / "replies", files)))


async def crowd(first: int, clients: int, port: int, folder: Path) -> None:
    """All sessions of this process, until it is stopped."""
    gate, up, files = asyncio.Semaphore(AT_ONCE), [], {}
    await asyncio.gather(*(session(c, port, folder, gate, up, files) for c in range(first, first + clients)))


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
        digest = prepare_replies(folder / "replies", clients)
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
                        str(folder),
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
                outcome |= rounds(carrier, broker, there, digest)
                print(json.dumps(outcome), flush=True)  # taking all these connections down takes its time
                return outcome


def new_server(clients: int) -> ServerSession:
    """The server of the run, at its start."""
    b = 8 * SIZE
    agreement = Agreement(
        name="crowd", seed=0, names=["w"], shapes=[[30 * b]], wire=Wire(b=b, codec="sign1"), known_weights=True
    )
    sizes = dict.fromkeys(range(clients), 1.0)
    enrolled = Identities(clients, {client: client for client in sizes})
    return ServerSession(agreement, torch.zeros(agreement.d), sizes=sizes, identities=enrolled)


def prepare_replies(folder: Path, clients: int) -> str:
    """Write every reply of the run, a file a round; return the digest after the last round."""
    folder.mkdir()
    (folder / "clients").write_text(str(clients))
    server, rng = new_server(clients), torch.Generator().manual_seed(0)
    channel, b = server.agreement.channel(sizes=dict.fromkeys(range(clients), 1.0)), 8 * SIZE
    for t in range(1, ROUNDS + 2):
        replies = []
        for first in range(0, clients, 500):
            who = list(range(first, min(first + 500, clients)))
            sketches = torch.randn(len(who), b, generator=rng)
            frames = channel.encode_sketches(t, sketches, clients=who, weights=[1.0] * len(who))
            replies += [reply_of(server, client, frame) for client, frame in zip(who, frames, strict=True)]
        (folder / str(t)).write_bytes(b"".join(replies))
        for node, data in enumerate(replies):
            server.order(node)
            if server.receive(node, data) is not Outcome.DONE:
                raise SystemExit(f"the reply of {node} was not taken")
        server.close()
    (folder / f"{server.t + 1} synced").write_bytes(b"".join(reply_of(server, node, None) for node in range(clients)))
    return server.digest()


def reply_of(server: ServerSession, client: int, frame: bytes | None) -> bytes:
    """What an honest client says in the server's next round; without a frame, that it is up to date."""
    reply = Reply(
        run=server.agreement.run,
        d=server.agreement.d,
        t=server.t + 1,
        state=State.SYNCED if frame is None else State.TRAINED,
        client=client,
        version=server.t,
        digest=server._half_digest(),
        frame=frame,
    )
    return reply.pack() if server.t == 0 else pack_reply(reply) or b""


class Clocks:
    """CPU of the server's parts and of the broker, read at the end of every round."""

    def __init__(self, carrier: MqttCarrier, server: ServerSession, broker: int) -> None:
        self._link, self._broker, self._closing = carrier.link._thread.native_id, broker, 0.0
        self.rows: list[dict[str, float]] = []
        self._close, server.close = server.close, self._timed  # type: ignore[method-assign]

    def _timed(self) -> RoundReport:
        before = time.thread_time()
        try:
            return self._close()
        finally:
            self._closing += time.thread_time() - before

    def read(self, row: dict[str, Any]) -> None:
        """A round ended."""
        fields = Path(f"/proc/self/task/{self._link}/stat").read_text().rpartition(")")[2].split()
        network = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        took_part = {"participants": row["participants"], "seconds": row["seconds"]}
        now = {"server": own_cpu(), "network": network, "close": self._closing, "broker": cpu(self._broker)}
        self.rows.append(took_part | now)


def rounds(carrier: MqttCarrier, broker: int, clients: int, digest: str) -> dict[str, Any]:
    """Rounds with everybody; the CPU of each party per client and round, after the first."""
    torch.set_num_threads(1)
    server = new_server(clients)
    clocks = Clocks(carrier, server, broker)
    Rounds(
        session=server,
        carrier=carrier,
        clients=clients,
        wait_for=clients,
        seconds=300.0,
        repeat_after=REPEAT_SECONDS,
        on_row=clocks.read,
    ).run(ROUNDS + 1)
    first, last = clocks.rows[0], clocks.rows[-2]  # the goodbye comes before the last row
    each = 1e6 / (clients * (ROUNDS - 1))
    spent = {name: each * (last[name] - first[name]) for name in ("server", "network", "close", "broker")}
    return {
        "rounds": len(clocks.rows),
        "bytes_a_message": SIZE,
        "answered": [int(row["participants"]) for row in clocks.rows],
        "still_held": len(carrier.nodes()),
        "digest_as_in_process": server.digest() == digest,
        "server_us_per_client_and_round": round(spent["server"], 1),
        "server_us_split": {
            "network library and connection": round(spent["network"], 1),
            "decode, judge, average, step": round(spent["close"], 1),
            "orders, checks, books": round(spent["server"] - spent["network"] - spent["close"], 1),
        },
        "server_resident_bytes": memory(os.getpid()),
        "broker_us_per_client_and_round": round(spent["broker"], 1),
        "seconds_per_round": round(sum(row["seconds"] for row in clocks.rows[1:]) / ROUNDS, 2),
    }


def main() -> None:
    """Measure, or be a part of the crowd."""
    if "--generate" in sys.argv:
        first, count, port, folder = sys.argv[2:6]
        asyncio.run(crowd(int(first), int(count), int(port), Path(folder)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds to wait for all to connect")
    parser.add_argument("--dry", action="store_true", help="do not write the result")
    args = parser.parse_args()
    outcome = measure(args.clients, args.limit) | {"load": [round(number, 1) for number in os.getloadavg()]}
    print(json.dumps(outcome))
    if not args.dry:
        document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": {}}
        document["crowd"] = {"command": f"python benchmarks/mqtt_crowd.py --clients {args.clients}", **outcome}
        write_durably(RESULTS, (json.dumps(document, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
