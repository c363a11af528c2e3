"""Wire: the settings of every message of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from desketch.errors import ConfigError
from desketch.wire.codecs import CODEC_TABLE
from desketch.wire.frame import FAMILY_CODES
from desketch.wire.rotation import MIXED
from desketch.wire.trellis import FEWEST

__all__ = ["Wire"]


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What every message is made of; the same defaults at every entrance.

    ``compression`` is d/b, or give the sketch size ``b`` itself.  ``codec`` holds the numbers on the way up and
    ``codec_down`` those on the way down (default: the same).  ``options`` are the family's, e.g. ``{"nnz": 4}``.

    >>> Wire().sketch_size(9610)  # d/b = 30
    320
    >>> Wire(b=100, codec="int8", codec_down="f16").sketch_size(9610)
    100
    """

    family: str = "srht"
    compression: float = 30.0
    b: int | None = None
    codec: str = "sign1"
    codec_down: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value, table in (
            ("family", self.family, tuple(name for name in FAMILY_CODES if name != "none")),
            ("codec", self.codec, tuple(CODEC_TABLE)),
            ("codec_down", self.codec_down or self.codec, tuple(CODEC_TABLE)),
        ):
            if value not in table:
                raise ConfigError(f"{name}: got {value!r}, expected one of {', '.join(table)}")
        for name, number in (("compression", self.compression), ("b", 1 if self.b is None else self.b)):
            if not isinstance(number, int | float) or (name == "b" and not isinstance(number, int)):
                raise ConfigError(f"{name} is a number, got {number!r}")
        if not self.compression >= 1:
            raise ConfigError(f"compression is d/b and must be at least 1, got {self.compression}")
        if self.b is not None and self.b < 1:
            raise ConfigError(f"b counts the numbers of a sketch and must be at least 1, got {self.b}")

    def sketch_size(self, d: int) -> int:
        """The b of a model with d parameters."""
        if self.b is None:
            if self.compression > d:
                raise ConfigError(
                    f"compression {self.compression:g} leaves no number of the model's d = {d} parameters; "
                    f"set it to at most {d}"
                )
            return max(1, round(d / self.compression))
        if self.b > d:
            raise ConfigError(
                f"b must be at most d = {d}, the model's parameters, got {self.b}; lower b or set compression"
            )
        return self.b

    @property
    def down(self) -> str:
        """The codec of the broadcast."""
        return self.codec_down or self.codec

    @property
    def bits(self) -> float:
        """How many a number has, in the mean of both ways, at most 1."""
        return sum(min(1.0, CODEC_TABLE[codec].bits) for codec in (self.codec, self.down)) / 2

    def caution(self, d: int) -> str | None:
        """What a user should know of this choice before a run, if anything."""
        from desketch.theory.link import sign_bias  # here, since most who import wire never ask

        b = self.sketch_size(d)
        for codec in (self.codec, self.down):
            least = round(FEWEST / CODEC_TABLE[codec].bits)
            if codec.startswith("trellis") and b < least:
                return (
                    f"b = {b}: {codec} needs some {FEWEST} bits a message to be as good as its rate; use a b of at "
                    f"least {least}, or codec sign1"
                )
        if b >= MIXED or "sign1" not in (self.codec, self.down) or sign_bias(b) <= sign_bias(MIXED):
            return None
        larger = f", or a larger b (compression at most {d / MIXED:.3g})" if d >= MIXED else ""
        return (
            f"b = {b}: below {MIXED} numbers the one-bit code is biased, here by up to {sign_bias(b):.0%} of a message;"
            f" use codec int8{larger}"
        )
