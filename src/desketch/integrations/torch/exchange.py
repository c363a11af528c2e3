"""Exchange: what the ranks of a group send each other in a round, and the bytes of it.

The mean of b numbers a rank takes two collectives.  The numbers are cut into W parts; rank j receives everyone's part j
(all-to-all), decodes, averages and encodes it again, and everyone collects the averaged parts (all-gather):

    sent by a rank = received by it = (W-1)/W · (bytes of b numbers up + bytes of b numbers down),

about 2 b/8 bytes for one bit a number, whatever W is.  Every rank decodes the same bytes of the mean, so all hold the
same bits.  A collective is charged for what leaves and enters a rank: an all-gather of n bytes is (W-1) n each way.

A part is coded in chunks of 2^18 numbers, each with its own rotation and scale: a chunk stays in the cache, and nothing
as long as a part is ever held in more than float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from desketch.errors import RunError
from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header

__all__ = ["Buffer", "Exchange", "Feedback", "Floats", "gather_bytes", "mean_bytes", "parts"]

Floats = npt.NDArray[np.float32]
Buffer = bytes | memoryview  # views of what a collective received: a copy would be as long again
_LEAST_PART = 64  # numbers: below, the one-bit code is biased and a part's scale costs more than its numbers
_CHUNK = 1 << 18  # numbers coded at a time


class Exchange:
    """The collectives of one group, counted; tensors live where the group's backend wants them."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        nccl = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
        self.sent = self.received = 0

    def gather(self, mine: bytes, *, length: int | None = None) -> list[bytes]:
        """Everyone's bytes, by rank; all of one length, or padded to ``length``."""
        return [bytes(row) for row in self._collect(mine, len(mine) if length is None else length)]

    def _collect(self, mine: bytes, n: int) -> list[Buffer]:
        with self._speaking("all-gather"):
            everyone = self._all_gather(mine.ljust(n, b"\0"))
        self._count((self.size - 1) * n)
        return everyone

    def gather_any(self, mine: bytes) -> list[bytes]:
        """Everyone's bytes, by rank, of any lengths: the lengths travel first."""
        lengths = [int.from_bytes(row, "little") for row in self.gather(len(mine).to_bytes(8, "little"))]
        padded = self.gather(mine, length=max(lengths))
        return [row[:n] for row, n in zip(padded, lengths, strict=True)]

    def mean(
        self,
        values: Floats,
        *,
        key: Key,
        up: str,
        down: str,
        heard: Sequence[int],
        feedback: Feedback | None = None,
        out: Floats | None = None,
    ) -> Floats:
        """The mean of the ``heard`` ranks' ``values``, rounded by ``up``, then by ``down``; equal bits everywhere.

        ``key`` belongs to the round: rotations and rounding are drawn from it, different ones for every rank and part.
        With ``feedback`` both roundings are corrected by what earlier ones left over.  ``out`` may be ``values``.
        """
        cuts, kept = parts(len(values), self.size), feedback.kept if feedback else 1.0
        if feedback:
            values = feedback.recall("own", values)
        outgoing = [
            _encode(values[cut], up, key=key.fold_in("part", j), kind="update", rounding=self.rank)
            for j, cut in enumerate(cuts)
        ]
        if feedback:
            feedback.keep("own", values, _join(outgoing, cuts, up, key=key, kind="update"))
        incoming = self._swap(outgoing, mine=_size(up, _length(cuts[self.rank])))
        own = b""
        if n := _length(cuts[self.rank]):
            part = key.fold_in("part", self.rank)
            average = _average([incoming[rank] for rank in heard], up, n=n, key=part, kept=kept)
            incoming.clear()
            if feedback:
                average = feedback.recall("part", average)
            own = _encode(average, down, key=part, kind="broadcast", rounding=self.rank)
            if feedback:
                feedback.keep("part", average, _whole(own, down, n=n, key=part, kind="broadcast"))
        sizes = [_size(down, _length(cut)) for cut in cuts]
        collected = [row[:size] for row, size in zip(self._collect(own, max(sizes)), sizes, strict=True)]
        out = _join(collected, cuts, down, key=key, kind="broadcast", out=out)
        if feedback:
            out *= np.float32(kept)
        return out

    def _swap(self, outgoing: list[bytes], *, mine: int) -> list[Buffer]:
        """Send ``outgoing[j]`` to rank j, and let go of it; return what each rank sent here, ``mine`` bytes each."""
        mine = mine if outgoing[self.rank] else 0
        sent = sum(map(len, outgoing)) - len(outgoing[self.rank])
        with self._speaking("all-to-all"):
            incoming = self._all_to_all(outgoing, mine=mine)
        self._count(sent, (self.size - 1) * mine)
        return incoming

    def broadcast(self, values: torch.Tensor, *, source: int) -> None:
        """Rank ``source``'s values for everyone, in place; charged as a chain: one copy in, one out."""
        with self._speaking("broadcast"):
            self._broadcast(values, source=source)
        n = values.numel() * values.element_size() if self.size > 1 else 0
        self._count(n if self.rank == source else 0, 0 if self.rank == source else n)

    def _all_gather(self, mine: bytes) -> list[Buffer]:
        local = _tensor(bytearray(mine), self.device)
        everyone = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(everyone, local, group=self.group)
        return [_view(row) for row in everyone]

    def _all_to_all(self, outgoing: list[bytes], *, mine: int) -> list[Buffer]:
        lengths, source = [len(part) for part in outgoing], _tensor(bytearray().join(outgoing), self.device)
        outgoing.clear()
        target = torch.empty(mine * self.size, dtype=torch.uint8, device=self.device)
        dist.all_to_all_single(target, source, [mine] * self.size, lengths, group=self.group)
        received = _view(target)
        return [received[i * mine : (i + 1) * mine] for i in range(self.size)]

    def _broadcast(self, values: torch.Tensor, *, source: int) -> None:
        moved = values.to(self.device)
        dist.broadcast(moved, group_src=source, group=self.group)
        values.copy_(moved)

    def _count(self, sent: int, received: int | None = None) -> None:
        self.sent += sent
        self.received += sent if received is None else received

    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Turn whatever the backend says about a lost peer into one sentence."""
        try:
            yield
        except RuntimeError as error:
            first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise RunError(
                f"rank {self.rank} of {self.size}: the {what} of an outer round failed, a rank has died or cannot be "
                f"reached ({first}). Nothing of this round was applied here: save model, optimiser and outer "
                "state_dict() of every rank that is left, start all ranks again, load them, and call "
                "outer.synchronise() if some rank has none or another round"
            ) from error


class Feedback:
    """What one rank's roundings left over: of its own updates, and of the part that it averages.

    ``kept`` scales the unbiased code down to the one that errs least; ``decay`` is what a memory keeps a round.
    Nothing moves before `commit`, so a round that failed can be tried again.
    """

    def __init__(self, *, decay: float, kept: float) -> None:
        self.decay, self.kept = decay, kept
        self._memory: dict[str, Floats] = {}
        self._next: dict[str, Floats] = {}

    def recall(self, which: str, values: Floats) -> Floats:
        """The values plus what is left of earlier ones."""
        memory = self._memory.get(which)
        return values if memory is None else values + np.float32(self.decay) * memory

    def keep(self, which: str, values: Floats, decoded: Floats) -> None:
        """Values that were sent, and what the unbiased code made of them."""
        self._next[which] = values - np.float32(self.kept) * decoded

    def commit(self) -> None:
        """The round is over."""
        self._memory, self._next = self._next, {}

    def state_dict(self) -> dict[str, Any]:
        """The memories."""
        return {which: torch.from_numpy(memory) for which, memory in self._memory.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._memory = {which: memory.clone().numpy() for which, memory in state.items()}


def parts(b: int, ranks: int) -> list[slice]:
    """Who averages which numbers: as equal as can be, none (but the only one) below 64; ranks left over get none."""
    count = max(1, min(ranks, b // _LEAST_PART))
    edges = [j * b // count for j in range(count + 1)] + [b] * (ranks - count)
    return [slice(edges[j], edges[j + 1]) for j in range(ranks)]


def mean_bytes(b: int, ranks: int, *, up: str, down: str) -> float:
    """Bytes a rank sends, on average over the ranks, to learn the mean of b numbers; it receives as many."""
    lengths = [_length(cut) for cut in parts(b, ranks) if _length(cut)]
    first = (ranks - 1) / ranks * sum(_size(up, n) for n in lengths)
    return first + gather_bytes(max(_size(down, n) for n in lengths), ranks)


def gather_bytes(n: int, ranks: int) -> int:
    """Bytes a rank sends, and receives, in an all-gather of n bytes each."""
    return (ranks - 1) * n


def _header(codec: str, *, n: int, key: Key, kind: str) -> Header:
    return Header(run=0, round=0, family="none", d=n, b=n, key=key, codec=codec, kind=kind)


def _chunks(n: int, key: Key) -> list[tuple[slice, Key]]:
    """The chunks of a part of n numbers, each with its key."""
    starts = range(0, n, _CHUNK)
    return [(slice(a, min(a + _CHUNK, n)), key.fold_in("chunk", i) if i else key) for i, a in enumerate(starts)]


def _size(codec: str, n: int) -> int:
    """Bytes of n numbers."""
    whole, rest = divmod(n, _CHUNK)
    return whole * CODEC_TABLE[codec].size(_CHUNK) + (CODEC_TABLE[codec].size(rest) if rest else 0)


def _encode(values: Floats, codec: str, *, key: Key, kind: str, rounding: int) -> bytes:
    out = []
    for cut, own in _chunks(len(values), key):
        header = _header(codec, n=_length(cut), key=own, kind=kind)
        out.append(CODEC_TABLE[codec].encode(values[cut][None], header, [own.fold_in("rounding", kind, rounding)]))
    return b"".join(payload.tobytes() for payload in out)


def _decode(payloads: Sequence[Buffer], codec: str, *, n: int, key: Key, kind: str) -> Iterator[Floats]:
    """The chunks of a part, each of shape (payloads, numbers)."""
    views, at = [np.frombuffer(payload, np.uint8) for payload in payloads], 0
    for cut, own in _chunks(n, key):
        size = CODEC_TABLE[codec].size(_length(cut))
        rows = np.stack([view[at : at + size] for view in views])
        yield CODEC_TABLE[codec].decode(rows, _header(codec, n=_length(cut), key=own, kind=kind))
        at += size


def _average(payloads: Sequence[Buffer], codec: str, *, n: int, key: Key, kept: float) -> Floats:
    """``kept`` times the mean of a part's updates."""
    out = np.empty(n, dtype=np.float32)
    for (cut, _), rows in zip(_chunks(n, key), _decode(payloads, codec, n=n, key=key, kind="update"), strict=True):
        out[cut] = kept * rows.mean(axis=0, dtype=np.float64)
    return out


def _whole(payload: Buffer, codec: str, *, n: int, key: Key, kind: str, out: Floats | None = None) -> Floats:
    """A part of n numbers, if it has any; into ``out`` if given."""
    out = np.empty(n, dtype=np.float32) if out is None else out
    for (cut, _), rows in zip(_chunks(n, key), _decode([payload], codec, n=n, key=key, kind=kind), strict=True):
        out[cut] = rows[0]
    return out


def _join(
    payloads: Sequence[Buffer], cuts: list[slice], codec: str, *, key: Key, kind: str, out: Floats | None = None
) -> Floats:
    """All parts decoded, in one vector; in ``out`` if given."""
    out = np.empty(cuts[-1].stop, dtype=np.float32) if out is None else out
    for j, (cut, payload) in enumerate(zip(cuts, payloads, strict=True)):
        _whole(payload, codec, n=_length(cut), key=key.fold_in("part", j), kind=kind, out=out[cut])
    return out


def _length(cut: slice) -> int:
    return int(cut.stop - cut.start)


def _tensor(data: bytearray, device: torch.device) -> torch.Tensor:
    array: Any = np.frombuffer(data, dtype=np.uint8)
    return torch.from_numpy(array).to(device)


def _view(row: torch.Tensor) -> Buffer:
    array: Any = row.cpu().numpy()
    return memoryview(array)
