"""A PyTorch DDP communication hook that all-reduces sketches instead of gradients.

Every bucket of a step t is sent as ``s = mean_i R g_i`` and used as ``Rᵀ s``: sketching is linear, so the mean of the
sketches is the sketch of the mean, ``E[Rᵀ s] = ḡ`` and ``E|Rᵀ s|² <= (1 + alpha)|ḡ|²`` (paper, Section "sketching").
R is drawn afresh for every (step, offset of the bucket in the step), from a public key: nothing is remembered about a
bucket, so DDP may rebuild its buckets after step 0, and a resumed state goes on with the keys not yet used.

With `SketchState.weigh` the sketch is ``R D⁻¹ g_i`` and ``D Rᵀ s`` is used, D_l a power of the running mean square of
tensor l in the gradients that were used: public, and without a byte.  Adam divides a gradient by √v, so that the
curvature it meets is about that of v/v: by the theorem of ``theory/weights.py`` D_l² is then proportional to √v_l.

::

    state = SketchState(family="countsketch", compression=10, key=Key(2023))
    model.register_comm_hook(state, sketch_hook)
"""

# No postponed annotations here: DDP compares the hook's annotations with the real classes.
import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from desketch.errors import InputError, RunError
from desketch.fed.auto_step import round16
from desketch.keys import Key
from desketch.sketches import FAMILIES, Sketch, Weighted, draw
from desketch.theory.weights import normalised

__all__ = ["CompressionStats", "EnergyNote", "SketchState", "sketch_hook"]

Group = dist.ProcessGroup | None
_Weights = tuple[list[int], list[int], list[float]]  # of a bucket's tensors: their places, sizes and D
_NOTE_EVERY = 16  # steps between energy measurements: two more reads of the gradient, too dear for every step
_NOTE_DECAY = 0.9
_SQUARES_DECAY = 0.9
_LEAST_SQUARE = 1e-6  # of the largest of a bucket: the roots then span a factor of 1000


@dataclass(frozen=True)
class CompressionStats:
    """What the collectives carried so far, per rank: payload bytes beside those of a plain f32 all-reduce."""

    steps: int
    bytes_plain: int
    bytes_sent: int

    @property
    def ratio(self) -> float:
        """How many times smaller the payload was."""
        return self.bytes_plain / self.bytes_sent if self.bytes_sent else 1.0


@dataclass(frozen=True)
class EnergyNote:
    """Measured energies of the gradient, and what they say about the learning rate.

    ``signal`` is ``|s|²``, which has mean ``|ḡ|²`` and is known on every rank; ``used`` is ``|Rᵀ s|²``, the gradient
    the optimiser sees; ``local`` is this rank's own ``|g_i|²``, before the average.
    """

    signal: float
    used: float
    local: float

    @property
    def noise_scale(self) -> float:
        """``used/signal``: about 1 + alpha; how much longer than the true gradient the used one is, squared."""
        return self.used / self.signal

    @property
    def lr_factor(self) -> float:
        """1/sqrt(noise_scale): multiply SGD's learning rate, tuned without compression, by this; keep Adam's."""
        return 1.0 / math.sqrt(max(self.noise_scale, 1.0))

    @property
    def batch_noise(self) -> float:
        """``local/signal``: far above 1 when the batches disagree, and then sketching noise matters less."""
        return self.local / self.signal


class SketchState:
    """The state of `sketch_hook`: what R is drawn from, the step counter, and what was measured.

    All ranks must construct it alike: the first bucket compares a digest over the group and raises `RunError` if they
    differ.  Pickles without its process group (a restored state uses the default one unless `process_group` is set).

    Args:
        process_group: the group that averages, or None for the default group.
        family: a sketch family; countsketch is the fastest, srht has the smallest alpha.
        compression: d/b.
        key: the public key all ranks share.
        codec: "f32", or "f16" for half the bytes; the sum is taken in f32 either way.
        warm_start_iterations: steps at the start that all-reduce the plain gradient.

    """

    def __init__(
        self,
        process_group: Group = None,
        *,
        family: str = "countsketch",
        compression: float = 10.0,
        key: Key,
        codec: str = "f32",
        warm_start_iterations: int = 0,
    ) -> None:
        if family not in FAMILIES:
            raise InputError(f"unknown sketch family {family!r}; choose one of {', '.join(FAMILIES)}")
        if not (math.isfinite(compression) and compression >= 1):
            raise InputError(f"compression is d/b, a finite number >= 1; got {compression!r}")
        if codec not in _MEANS:
            raise InputError(f"unknown codec {codec!r}; choose one of {', '.join(_MEANS)}")
        if warm_start_iterations < 0:
            raise InputError(f"warm_start_iterations must be >= 0, got {warm_start_iterations}")
        self.process_group = process_group
        self.family, self.compression, self.key, self.codec = family, float(compression), key, codec
        self.warm_start_iterations = warm_start_iterations
        self.step = 0
        self._offset = 0
        self._bytes_plain = self._bytes_sent = 0
        self._energies: tuple[float, float, float] | None = None
        self._peers_checked = False
        self._squares: dict[int, float] = {}  # by place of a parameter: the running mean square of its gradient
        self._places: dict[int, int] | None = None  # by id of a parameter, where tensors are weighed
        self._power = 0.0

    def weigh(self, parameters: Iterable[torch.nn.Parameter], *, power: float = 0.25) -> "SketchState":
        """Weigh tensors by this power of their gradients' mean square: 1/4 for Adam; 0 is D = 1, which is for SGD.

        ``parameters`` are ``model.parameters()``; a state that was pickled has to be told them again.
        """
        if not 0 <= power <= 1:
            raise InputError(f"power is that of a mean square, from 0 to 1, got {power!r}")
        self._power, self._places = power, {id(p): place for place, p in enumerate(parameters)}
        if not self._places:
            raise InputError("weigh(parameters) got none; give model.parameters()")
        return self

    def compression_stats(self) -> CompressionStats:
        """Bytes so far, by this rank's payloads."""
        return CompressionStats(self.step, self._bytes_plain, self._bytes_sent)

    def energy_note(self) -> EnergyNote | None:
        """The energies, averaged over recently measured buckets; None before the first compressed step."""
        return None if self._energies is None else EnergyNote(*self._energies)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "process_group": None, "_peers_checked": False, "_places": None}

    def _enter(self, d: int, *, last: bool) -> tuple[int, int]:
        """Return (step, offset) of a bucket of d numbers and move on; all ranks see the buckets in one order."""
        at = self.step, self._offset
        self.step, self._offset = (self.step + 1, 0) if last else (self.step, self._offset + d)
        return at

    def _draw(self, d: int, step: int, offset: int) -> Sketch | None:
        """R of a bucket, or None when the plain gradient is to travel."""
        b = math.ceil(d / self.compression)
        if step < self.warm_start_iterations or b >= d:
            return None
        return draw(self.family, d=d, b=b, key=self.key.fold_in("ddp", step, offset))

    def _check_peers(self, device: torch.device) -> None:
        """Raise unless all ranks draw the same sketches; one 8-byte gather, once per process."""
        if self._peers_checked:
            return
        wire = (self.family, self.compression, self.key, self.codec, self.warm_start_iterations, self.step)
        mine = repr((*wire, sorted(self._squares.items()), self._weighed))
        digest = int.from_bytes(hashlib.sha256(mine.encode()).digest()[:7], "little")
        local = torch.tensor([digest], device=device)
        everyone = [torch.zeros_like(local) for _ in range(dist.get_world_size(self.process_group))]
        dist.all_gather(everyone, local, group=self.process_group)
        if any(int(other) != digest for other in everyone):
            raise RunError(
                f"the ranks' SketchStates differ (this rank: {mine}); construct them with the same arguments and "
                "resume every rank from the same step"
            )
        self._peers_checked = True

    @property
    def _weighed(self) -> str:
        """Whether tensors are weighed; a state that once was has to be told the parameters again."""
        if self._squares and self._places is None:
            raise RunError("this state weighs tensors and was restored; call state.weigh(model.parameters()) again")
        return f"tensors weighed by their squares to {self._power:g}" if self._places is not None else "tensors alike"

    def _weights(self, bucket: GradBucket) -> _Weights | None:
        """D of a bucket's tensors; None where they are alike."""
        if self._places is None:
            return None
        parameters = bucket.parameters()
        if strangers := [tuple(p.shape) for p in parameters if id(p) not in self._places]:
            raise RunError(
                f"weigh() was not told parameters of shape {strangers[:3]}; give it the model.parameters() that "
                "DDP wraps"
            )
        places = [self._places[id(p)] for p in parameters]
        sizes = [p.numel() for p in parameters]
        known = [self._squares.get(place, 0.0) for place in places]
        top = max(known)
        if top == 0.0:
            return places, sizes, [1.0] * len(sizes)
        powers = [max(square, _LEAST_SQUARE * top) ** self._power for square in known]
        return places, sizes, [round16(D) for D in normalised(powers, sizes)]

    def _used(self, weights: _Weights | None, gradient: torch.Tensor) -> torch.Tensor:
        """Take the gradient that is used into the running mean squares, where tensors are weighed."""
        places, sizes, _ = weights or ([], [], [])
        for place, part in zip(places, torch.split(gradient, sizes) if sizes else (), strict=True):
            square = float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 / max(part.numel(), 1)
            if math.isfinite(square):  # else an overflowed step of a gradient scaler
                old = self._squares.get(place, square)
                self._squares[place] = round16(_SQUARES_DECAY * old + (1 - _SQUARES_DECAY) * square)
        return gradient

    def _note(self, signal: float, used: float, local: float) -> None:
        new = signal, used, local
        if not all(map(math.isfinite, new)) or signal == 0:
            return  # an overflowed step of a gradient scaler says nothing about energies
        old = self._energies or new
        self._energies = tuple(_NOTE_DECAY * o + (1 - _NOTE_DECAY) * n for o, n in zip(old, new, strict=True))  # type: ignore[assignment]


def sketch_hook(state: SketchState, bucket: GradBucket) -> Future[torch.Tensor]:
    """Average one bucket over the group by its sketch; for ``model.register_comm_hook(state, sketch_hook)``."""
    buffer = bucket.buffer()
    state._check_peers(buffer.device)
    step, offset = state._enter(buffer.numel(), last=bucket.is_last())
    state._bytes_plain += buffer.numel() * 4
    drawn, weights = state._draw(buffer.numel(), step, offset), state._weights(bucket)
    if drawn is None:
        state._bytes_sent += buffer.numel() * buffer.element_size()
        return _mean_f32(buffer, state.process_group).then(lambda done: state._used(weights, done.value()))

    R = drawn if weights is None else Weighted(drawn, weights[2], weights[1])
    # A half-precision bucket (fp16_compress_wrapper) was asked to travel in half precision: so does its sketch.
    codec = state.codec if buffer.element_size() >= 4 else "f16"
    gradient = buffer.float()
    measured = step % _NOTE_EVERY == 0
    local = _energy(gradient) if measured else 0.0
    sketch = R.sketch(gradient)
    state._bytes_sent += sketch.numel() * _ITEM_BYTES[codec]

    def desketch(mean: Future[torch.Tensor]) -> torch.Tensor:
        s = mean.value()
        buffer.copy_(R.desketch(s))
        state._used(weights, buffer)
        if measured:
            state._note(_energy(s), _energy(buffer), local)
        return buffer

    return _MEANS[codec](sketch, state.process_group).then(desketch)


def _energy(x: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float32)) ** 2


def _mean_f32(x: torch.Tensor, group: Group) -> Future[torch.Tensor]:
    """The mean over the group, in place, by one all-reduce."""
    x.div_(dist.get_world_size(group))
    future = dist.all_reduce(x, group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def _mean_f16(x: torch.Tensor, group: Group) -> Future[torch.Tensor]:
    """The mean over the group with f16 on the wire and f32 sums, for the bytes of an f16 all-reduce.

    Rank j receives everyone's j-th part, adds in f32, rounds once and sends the mean part to all: every rank decodes
    the same bits.  The first exchange blocks, because collectives started from a callback would be numbered
    differently on different ranks.
    """
    n = dist.get_world_size(group)
    parts = torch.nn.functional.pad(x, (0, -x.numel() % n)).view(n, -1)
    received = torch.empty_like(sent := _pack_f16(parts))
    dist.all_to_all_single(received, sent, group=group)
    mean = _pack_f16(_unpack_f16(received).mean(dim=0, keepdim=True))
    everyone = torch.empty_like(sent)
    future = dist.all_gather(list(everyone.unbind()), mean[0], group=group, async_op=True).get_future()
    return future.then(lambda _: _unpack_f16(everyone).view(-1)[: x.numel()])


def _pack_f16(rows: torch.Tensor) -> torch.Tensor:
    """Each f32 row as bytes: its largest magnitude in f32, then the row divided by it in f16; NaN and inf survive."""
    scale = rows.abs().amax(dim=1, keepdim=True)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return torch.cat([scale.view(torch.uint8), (rows / scale).half().view(torch.uint8)], dim=1)


def _unpack_f16(packed: torch.Tensor) -> torch.Tensor:
    scale = packed[:, :4].contiguous().view(torch.float32)
    return packed[:, 4:].contiguous().view(torch.float16).float() * scale


_MEANS: dict[str, Callable[[torch.Tensor, Group], Future[torch.Tensor]]] = {"f32": _mean_f32, "f16": _mean_f16}
_ITEM_BYTES = {"f32": 4, "f16": 2}
