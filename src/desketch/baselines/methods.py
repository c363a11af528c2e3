"""The table of methods that ``desketch compare`` knows: how each is wired, and the settings it is tuned over.

Every grid has `BUDGET` settings, so every method is tuned with the same number of runs.  The baselines' sizes are
relative to d (``density`` is k/d, ``compression`` d over the numbers sent).  A sketch has ``b`` numbers whatever d is:
de-sketching leaves noise of std eta |y| / sqrt(b) in every weight, so b alone decides whether a model trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from desketch.baselines.channel import CompressedChannel
from desketch.baselines.chunks import ChunkedTopK
from desketch.baselines.compressor import Compressor, ErrorFeedback
from desketch.baselines.decomfl import Directions, zeroth_order_clients
from desketch.baselines.dense import Dense
from desketch.baselines.fetchsgd import FetchSGDChannel
from desketch.baselines.powersgd import PowerSGD
from desketch.baselines.sparse import SparseTernary, TopK
from desketch.core.flat import FlatModel
from desketch.errors import ConfigError
from desketch.fed.channel import Channel, SketchChannel
from desketch.fed.client import Participant
from desketch.fed.local import ClientData, LocalWork
from desketch.keys import Key

__all__ = ["BUDGET", "METHODS", "Method", "Setting", "Wiring", "find_methods", "fitted"]

BUDGET = 4

Setting = Mapping[str, Any]
"""One point of a method's grid: ``eta_local``, ``eta_global``, ``optimizer`` and the method's own sizes."""


@dataclass(frozen=True)
class Wiring:
    """What a channel is built from, besides its setting: the parameters' shapes and the public key of the run.

    ``client_momentum`` is the beta that the setting comes to on this federation, ``local_steps`` its K.
    """

    shapes: tuple[tuple[int, ...], ...]
    d: int
    key: Key
    run: int = 0
    agreed: Mapping[int, float] = field(default_factory=dict)  # weights that both ends know
    client_momentum: float = 0.0
    local_steps: int = 1


SIZED_FOR = 48_000  # weights: on smaller models the shares of the entries in the grids would be hardly any
SKETCHED_FOR = 19_000  # weights: on smaller models the grid's b would be most of them

Recruit = Callable[[Any, Sequence[ClientData], FlatModel, LocalWork], Sequence[Participant]]
"""Makes the participants of a method whose clients do not take gradient steps: given its channel, data and work."""


@dataclass(frozen=True)
class Method:
    """A way to move updates, with its grid; ``default`` and ``average`` are what it uses where nothing may be tuned.

    Without a ``channel`` nothing moves: every client trains by itself.
    """

    name: str
    what: str
    channel: Callable[[Wiring, Setting], Channel] | None
    grid: tuple[Setting, ...]
    default: Setting | None = None
    average: int = 1
    recruit: Recruit | None = None

    @property
    def untuned(self) -> Setting:
        """The method's own default, else the first setting of its grid."""
        return self.default or self.grid[0]


def find_methods(names: list[str]) -> list[Method]:
    """The methods of these names, in this order."""
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise ConfigError(f"unknown methods {', '.join(unknown)}; choose from {', '.join(METHODS)}")
    return [METHODS[name] for name in names]


def _grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    return tuple(MappingProxyType(dict(zip(axes, point, strict=True))) for point in product(*axes.values()))


def _one(**setting: Any) -> Setting:
    return MappingProxyType(setting)


def _dense(codec: str) -> Callable[[Wiring, Setting], Channel]:
    def build(wiring: Wiring, setting: Setting) -> Channel:
        return _both_ways(codec, wiring, Dense(d=wiring.d, codec=codec))

    return build


def _topk(wiring: Wiring, setting: Setting) -> Channel:
    return _both_ways("topk", wiring, ErrorFeedback(TopK(d=wiring.d, k=_count(wiring, setting["density"]))))


def _stc(wiring: Wiring, setting: Setting) -> Channel:
    return _both_ways("stc", wiring, ErrorFeedback(SparseTernary(d=wiring.d, k=_count(wiring, setting["density"]))))


def _sparseloco(wiring: Wiring, setting: Setting) -> Channel:
    code = ChunkedTopK(d=wiring.d, share=setting["density"])
    return CompressedChannel(
        name="sparseloco",
        up=ErrorFeedback(code, decay=0.95),  # the paper's; the server, which it does not have, forgets nothing
        down=ErrorFeedback(code),
        key=wiring.key,
        run=wiring.run,
        agreed=wiring.agreed,
    )


def _decomfl(wiring: Wiring, setting: Setting) -> Channel:
    return Directions(
        d=wiring.d,
        steps=wiring.local_steps,
        directions=setting["directions"],
        key=wiring.key,
        run=wiring.run,
        agreed=wiring.agreed,
    )


def _powersgd(wiring: Wiring, setting: Setting) -> Channel:
    return _both_ways("powersgd", wiring, ErrorFeedback(PowerSGD(shapes=wiring.shapes, rank=setting["rank"])))


def _fetchsgd(wiring: Wiring, setting: Setting) -> Channel:
    columns = _count(wiring, 1 / (5 * setting["compression"]))
    k = _count(wiring, setting["density"])
    return FetchSGDChannel(
        d=wiring.d, rows=5, columns=columns, k=k, key=wiring.key, run=wiring.run, agreed=wiring.agreed
    )


def _desketch(wiring: Wiring, setting: Setting) -> Channel:
    b = min(setting["b"], wiring.d)
    return SketchChannel(
        d=wiring.d,
        b=b,
        key=wiring.key,
        run=wiring.run,
        codec=setting["codec"],
        codec_down=setting.get("codec_down"),
        along=wiring.client_momentum > 0 and setting["eta_global"] == "auto",
        agreed=wiring.agreed,
    )


def _both_ways(name: str, wiring: Wiring, compressor: Compressor) -> Channel:
    return CompressedChannel(
        name=name, up=compressor, down=compressor, key=wiring.key, run=wiring.run, agreed=wiring.agreed
    )


def _count(wiring: Wiring, share: float) -> int:
    return max(1, round(share * wiring.d))


_SGD = {"optimizer": ("sgd",), "eta_global": (1.0,)}
_MOMENTUM = _grid(eta_local=(0.1, 0.2), optimizer=("momentum",), eta_global=(10.0, 3.0))
_AUTO = {"optimizer": ("momentum",), "eta_global": ("auto",), "client_momentum": (0.8,)}
_HALF_BIT_UP = {"codec": ("trellis2",), "codec_down": ("trellis1",), **_AUTO}
_THIRD_BIT_UP = {"codec": ("trellis3",), "codec_down": ("trellis2",), **_AUTO}
_ALL = (
    Method("alone", "each client by itself: nothing is sent", None, _grid(eta_local=(0.1, 0.2, 0.4, 0.05))),
    Method("fedavg", "every parameter in f32 (McMahan et al., 2017)", _dense("f32"),
           _grid(eta_local=(0.2, 0.4), optimizer=("sgd",), eta_global=(1.0, 2.0))),
    Method("fedavgm", "FedAvg with server momentum 0.9 (Hsu et al., 2019)", _dense("f32"), _MOMENTUM,
           default=_one(eta_local=0.2, optimizer="momentum", eta_global=3.0)),
    Method("fedavgm-f16", "FedAvg with momentum, half precision", _dense("f16"), _MOMENTUM),
    Method("fedavgm-int8", "FedAvg with momentum, 8-bit stochastic rounding (QSGD)", _dense("int8"), _MOMENTUM),
    Method("fedavgm-int4", "FedAvg with momentum, 4-bit stochastic rounding (QSGD)", _dense("int4"), _MOMENTUM),
    Method("fedadam", "FedAvg with Adam at the server (Reddi et al., 2021)", _dense("f32"),
           _grid(eta_local=(0.1, 0.2), optimizer=("adam",), eta_global=(0.003, 0.001))),
    Method("eden", "one bit a parameter after a rotation (Vargaftik et al., 2022)", _dense("sign1"), _MOMENTUM),
    Method("topk", "largest entries, error feedback both ways (Aji, Heafield, 2017)", _topk,
           _grid(density=(1 / 300, 1 / 1000), eta_local=(0.2,), **_SGD)
           + _grid(density=(1 / 300, 1 / 1000), eta_local=(0.1,), optimizer=("sgd",), eta_global=(5.0,))),
    Method("stc", "sparse ternary compression (Sattler et al., 2019)", _stc,
           _grid(density=(1 / 4000,), eta_local=(0.1,), optimizer=("sgd",), eta_global=(5.0, 3.0))
           + _grid(density=(1 / 4000,), eta_local=(0.05,), optimizer=("sgd",), eta_global=(10.0,))
           + _grid(density=(1 / 1000,), eta_local=(0.1,), optimizer=("sgd",), eta_global=(5.0,))),
    Method("sparseloco", "largest entries of chunks in two bits, fading residual (Sarfi et al., 2025)", _sparseloco,
           _grid(density=(1 / 1000, 1 / 4000), eta_local=(0.2,), optimizer=("sgd",), eta_global=(2.0,))
           + _grid(density=(1 / 1000, 1 / 4000), eta_local=(0.1,), optimizer=("sgd",), eta_global=(5.0,))),
    Method("powersgd", "rank-r matrices, error feedback, warm start (Vogels et al., 2019)", _powersgd,
           _grid(rank=(2, 1), eta_local=(0.2, 0.4), **_SGD)),
    Method("fetchsgd", "count sketch with momentum and error inside (Rothchild et al., 2020)", _fetchsgd,
           _grid(compression=(10.0, 40.0), density=(1 / 50,), eta_local=(0.2,), optimizer=("sgd",),
                 eta_global=(0.3, 0.1))),
    Method("decomfl", "differences of the loss along public directions, scalars only (Li et al., 2025)", _decomfl,
           _grid(directions=(10,), eta_local=(0.1, 0.03, 0.01), **_SGD)
           + _grid(directions=(40,), eta_local=(0.1,), **_SGD), recruit=zeroth_order_clients),
    Method("desketch", "SRHT sketch, a bit or less a number, automatic step, client momentum (this project)", _desketch,
           _grid(b=(320,), eta_local=(0.05,), **_THIRD_BIT_UP)
           + _grid(b=(256,), eta_local=(0.1, 0.2), **_HALF_BIT_UP)
           + _grid(b=(424,), eta_local=(0.1,), **_HALF_BIT_UP),
           default=_one(b=4096, codec="sign1", eta_local=0.1, optimizer="momentum", eta_global="auto",
                        client_momentum="auto"), average=10),
)  # fmt: skip


def fitted(method: Method, *, d: int) -> Method:
    """The method with a grid for d weights: on small models messages hold larger shares of the entries, fewer rows."""
    fits: dict[str, Callable[[Any], Any]] = {
        "density": lambda share: min(1.0, share * max(1.0, SIZED_FOR / d)),
        "b": lambda b: max(1, round(b * min(1.0, d / SKETCHED_FOR))),
    }
    grid = [{name: fits.get(name, lambda same: same)(value) for name, value in one.items()} for one in method.grid]
    return replace(method, grid=tuple(grid))


METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
