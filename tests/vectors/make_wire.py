"""Write tests/vectors/wire.json, the vectors of frame spec v2: ``python tests/vectors/make_wire.py``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header, decode, encode, pack

PATH = Path(__file__).with_name("wire.json")


def cases():
    key = Key(2023).fold_in("round", 7)
    values = [float(v) for v in np.float32([0.5, -1.25, 3.0, 0.0, -0.0078125, 2.5, -3.5, 1.0, 0.125, -2.0, 0.75])]
    for codec in CODEC_TABLE:
        for family in ("srht", "countsketch"):
            header = Header(run=0x01020304, round=7, family=family, d=51000, b=11, key=key, codec=codec, weight=72.0)
            rounding = key.fold_in("rounding", 0)
            frame = encode(values, header, rounding=rounding)
            yield header, {"values": values, "rounding": rounding.bits.hex()}, frame, decode(frame, header)[1].tolist()
    header = Header(
        run=0xFFFFFFFF, round=300, family="none", d=2, b=1, key=key, codec="opaque", kind="broadcast", weight=0.1
    )
    yield header, {"payload": b"any bytes".hex()}, pack(header, b"any bytes"), None


def main() -> None:
    vectors = []
    for header, given, frame, decoded in cases():
        fields = {name: getattr(header, name) for name in Header.__slots__ if name != "key"}
        vectors.append(
            {"header": fields | {"key": header.key.bits.hex()}, **given, "frame": frame.hex(), "decoded": decoded}
        )
    PATH.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
