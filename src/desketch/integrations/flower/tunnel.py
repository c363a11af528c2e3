"""The client's end of a secure connection: ``python -m desketch.integrations.flower.tunnel ... -- COMMAND``.

A SuperNode of Flower 1.41 cannot present a certificate.  This process opens a port on loopback, starts the SuperNode
with that port for its SuperLink, and carries every connection on to the front with the node's certificate; it ends with
the SuperNode, and with its exit code.  It carries bytes and reads none.

On loopback it speaks TLS too, with a certificate made at this moment: a SuperNode that signs requests insists on it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import ssl
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Tunnel", "main"]

_PIECE = 1 << 16
_CONNECT_SECONDS = 20.0


@dataclass(frozen=True)
class Tunnel:
    """From loopback to ``host:port``, which must hold a certificate of ``authority`` for ``host``."""

    host: str
    port: int
    outer: ssl.SSLContext
    inner: ssl.SSLContext

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            opening = asyncio.open_connection(self.host, self.port, ssl=self.outer, server_hostname=self.host)
            there, onward = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            print(f"tunnel: {self.host}:{self.port} cannot be reached: {error!r}", file=sys.stderr, flush=True)
            writer.close()
            return
        ways = [asyncio.create_task(_pump(reader, onward)), asyncio.create_task(_pump(there, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (onward, writer):
            end.close()

    async def run(self, command: list[str], trust: Path) -> int:
        """Start the command with this tunnel for its SuperLink; its exit code."""
        server = await asyncio.start_server(self.carry, "127.0.0.1", 0, ssl=self.inner)
        port = server.sockets[0].getsockname()[1]
        ends = ["--root-certificates", str(trust), "--superlink", f"127.0.0.1:{port}"]
        process = await asyncio.create_subprocess_exec(*command, *ends)
        for sign in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(sign, _pass_on, process, sign)
        async with server:
            return await process.wait()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()


def _pass_on(process: asyncio.subprocess.Process, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sign)


def main(arguments: list[str] | None = None) -> int:
    """Run the command after ``--`` behind a tunnel."""
    from desketch.integrations.certificates import make_loopback_certificate

    parser = argparse.ArgumentParser(
        prog="desketch tunnel", description="Start a SuperNode behind a client certificate."
    )
    parser.add_argument("--to", required=True, help="HOST:PORT of the front")
    parser.add_argument("--authority", required=True, help="ca.pem of the deployment")
    parser.add_argument("--certificate", required=True, help="this node's certificate; its key is beside it as .key")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- the command of the SuperNode")
    given = parser.parse_args(arguments)
    host, _, port = given.to.rpartition(":")
    outer = ssl.create_default_context(cafile=given.authority)
    outer.load_cert_chain(given.certificate, f"{given.certificate}.key")
    inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory(prefix="desketch-tunnel-") as folder:
        pem, key = make_loopback_certificate(Path(folder))
        inner.load_cert_chain(pem, key)
        tunnel = Tunnel(host.strip("[]"), int(port), outer, inner)
        return asyncio.run(tunnel.run(given.command[given.command[:1] == ["--"] :], pem))


if __name__ == "__main__":
    sys.exit(main())
