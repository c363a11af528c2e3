"""A proxy before a broker that loses, repeats, delays and reorders what passes, cuts connections, or falls silent.

In the clear it knows MQTT's packets, and only publishes are touched: what a broker, a bridge or a resumed session may
repeat or bring late.  Under TLS it moves bytes, and can only cut and fall silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading

PUBLISH = 3


class FaultProxy:
    """Listens on ``port``; shares are of publishes, each way, by a fixed seed."""

    def __init__(self, upstream, *, lost=0.0, cut_off=0.0, twice=0.0, delayed=0.0, longest=0.5, packets=True, seed=0):
        self.upstream, self.packets, self.longest = upstream, packets, longest
        self.lost, self.cut_off, self.twice, self.delayed = lost, cut_off, twice, delayed
        self.done = {"lost": 0, "cut_off": 0, "twice": 0, "delayed": 0}
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._writers, self._tasks = set(), set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_):
        self._call(self._end)
        self._thread.join(10)

    def cut(self):
        """Close every connection that passes through."""
        self._call(self._close_all)

    def silence(self):
        """Let nothing pass, and say nothing: a cable that was pulled."""
        self._call(self._flowing.clear)

    def speak(self):
        """Let everything pass again."""
        self._call(self._flowing.set)

    def _call(self, function):
        self._loop.call_soon_threadsafe(function)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _end(self):
        self._close_all()
        self._loop.stop()

    def _close_all(self):
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        self._writers |= pair
        pump = self._pump_packets if self.packets else self._pump_bytes
        for task in (pump(reader, up_writer), pump(up_reader, writer)):
            self._spawn(task, pair)

    def _spawn(self, coroutine, pair=()):
        task = self._loop.create_task(self._guard(coroutine, pair))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, coroutine, pair):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await coroutine
        for writer in pair:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump_bytes(self, reader, writer):
        while data := await reader.read(65536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()

    async def _pump_packets(self, reader, writer):
        while True:
            packet = await _packet(reader)
            await self._flowing.wait()
            if packet[0] >> 4 != PUBLISH:
                writer.write(packet)
            else:
                self._tamper(packet, writer)
            await writer.drain()

    def _tamper(self, packet, writer):
        if self._happens("cut_off"):  # a message that is lost with its connection
            writer.transport.abort()
            return
        copies = 1
        if self._happens("twice"):
            copies = 2
        for _ in range(copies):
            if self._happens("lost"):
                continue
            if self._happens("delayed"):
                self._spawn(self._later(packet, writer))
            else:
                writer.write(packet)

    async def _later(self, packet, writer):
        await asyncio.sleep(self._rng.uniform(0, self.longest))
        if not writer.is_closing():
            writer.write(packet)

    def _happens(self, what):
        if self._rng.random() >= getattr(self, what):
            return False
        self.done[what] += 1
        return True


async def _packet(reader):
    """One whole MQTT packet."""
    head = await reader.readexactly(1)
    length, shift = 0, 0
    while True:
        byte = await reader.readexactly(1)
        head += byte
        length |= (byte[0] & 0x7F) << shift
        shift += 7
        if not byte[0] & 0x80:
            return head + await reader.readexactly(length)
