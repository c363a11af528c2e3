"""Ways of averaging updates: a sketch, all numbers (DiLoCo), the largest entries (SparseLoCo); `make` builds one."""

from __future__ import annotations

from collections.abc import Sequence

from desketch.errors import ConfigError
from desketch.integrations.torch.methods.base import Method
from desketch.integrations.torch.methods.dense import Dense, DenseMethod
from desketch.integrations.torch.methods.signs import Signs, SignsMethod
from desketch.integrations.torch.methods.sketch import SketchMethod
from desketch.integrations.torch.methods.sparse import Sparse, SparseMethod
from desketch.integrations.torch.methods.weighing import Moments
from desketch.keys import Key
from desketch.wire import Wire

__all__ = ["FEW", "METHODS", "AnyWire", "Dense", "Method", "Signs", "Sparse", "defaults", "make", "wire_of"]

AnyWire = Wire | Dense | Sparse | Signs

METHODS: dict[str, AnyWire] = {
    "sketch": Wire(compression=10),
    "diloco": Dense(),
    "diloco-int8": Dense(codec="int8"),
    "diloco-int4": Dense(codec="int4"),
    "sparseloco": Sparse(),
    "signs": Signs(),
}
"""A name for the usual wire of every method."""

FEW = 200  # rounds: in a shorter run a large outer momentum has not averaged before the run is over

_KINDS: dict[type, type[Method]] = {Wire: SketchMethod, Dense: DenseMethod, Sparse: SparseMethod, Signs: SignsMethod}


def wire_of(method: str | None, wire: AnyWire | None, compression: float | None) -> AnyWire:
    """The wire that the arguments of the outer step name; each names it alone, or they are refused."""
    if sum(x is not None for x in (method, wire, compression)) > 1 and not (method == "sketch" and wire is None):
        given = ", ".join(
            n for n, x in (("method", method), ("wire", wire), ("compression", compression)) if x is not None
        )
        raise ConfigError(f"give one of method, wire and compression, got {given}; wire says everything they do")
    if compression is not None:
        return Wire(compression=compression)
    if wire is not None:
        if type(wire) not in _KINDS:
            raise ConfigError(f"wire is a Wire (a sketch), Dense, Sparse or Signs, got {wire!r}")
        return wire
    if (method or "sketch") not in METHODS:
        raise ConfigError(f"unknown method {method!r}; choose auto or one of {', '.join(METHODS)}")
    return METHODS[method or "sketch"]


def defaults(wire: AnyWire, *, rounds: int | None = None) -> tuple[float, float]:
    """Outer learning rate and momentum that the wire's method is known to work with, in a run of so many rounds."""
    kind = _KINDS[type(wire)]
    if isinstance(wire, Wire | Dense) and rounds is not None and rounds < FEW:
        return 1.0, 0.7
    return kind.lr, kind.momentum


def make(wire: AnyWire, *, sizes: Sequence[int], key: Key, momentum: float, moments: Moments | None) -> Method:
    """The method of a wire, for tensors of these sizes."""
    if isinstance(wire, Wire):
        return SketchMethod(wire, sizes=sizes, key=key, momentum=momentum, moments=moments)
    if isinstance(wire, Dense):
        return DenseMethod(wire, d=sum(sizes), key=key)
    if isinstance(wire, Signs):
        return SignsMethod(wire, sizes=sizes, key=key, moments=moments)
    return SparseMethod(wire, d=sum(sizes))
