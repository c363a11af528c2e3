"""Write tests/vectors/sketches.json, the vectors of sketch spec v1: ``python tests/vectors/make_sketches.py``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from desketch.keys import Key
from desketch.sketches import draw
from desketch.sketches.dense import normals
from desketch.sketches.hashing import buckets, signs, subset

PATH = Path(__file__).with_name("sketches.json")
KEY = Key(2023).fold_in("round", 7)

PATHS = [
    (2023, []),
    (2023, ["round", 7]),
    (0, [0, 1, -1, 127, 128, -128, -129, 255, 2**64]),
    (-1, ["", "1", 1, "größe"]),
    (b"any bytes", ["a", "b"]),
]
WORDS = [(0, 0, 8), (0, 14, 4), (3, 60, 8), (4, 0, 4), (2**32 - 1, 1000, 4)]
POINTS = [0, 1, 2, 3, 31, 32, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 131071, 777777, 1000002]
SUBSETS = [(1, 1), (7, 3), (7, 5), (64, 64), (1000003, 6)]
NORMALS = [0, 1, 2, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000, 0xC0000001, 0xDEADBEEF, 0xFFFFFFFF]
CASES = [
    ("gaussian", 5, 2, {}),
    ("gaussian", 131, 7, {}),
    ("srht", 1, 1, {}),
    ("srht", 8, 8, {}),
    ("srht", 100, 9, {}),
    ("srht", 100, 70, {}),
    ("srht", 100, 9, {"block": 16}),
    ("srht", 100, 9, {"block": 128}),
    ("srht", 20001, 24, {}),
    ("srht", 1, 1, {"transform": "fourier"}),
    ("srht", 8, 8, {"transform": "fourier"}),
    ("srht", 100, 9, {"transform": "fourier"}),
    ("srht", 101, 70, {"transform": "fourier"}),
    ("srht", 4501, 24, {"transform": "fourier"}),
    ("ams", 5, 2, {}),
    ("ams", 131, 7, {}),
    ("countsketch", 131, 66, {}),
    ("countsketch", 131, 63, {}),
    ("countsketch", 131, 66, {"layout": "textbook"}),
    ("countsketch", 4500, 70, {}),
    ("sparse1", 3, 3, {}),
    ("sparse1", 131, 66, {"nnz": 3}),
    ("sparse1", 131, 20, {"nnz": 5}),
    ("sparse1", 131, 66, {"layout": "textbook"}),
    ("sparse2", 3, 2, {}),
    ("sparse2", 200, 131, {"nnz": 2}),
    ("sparse2", 131, 127, {"nnz": 2}),
    ("sparse2", 131, 20, {"nnz": 3, "layout": "textbook"}),
    ("uniform", 1, 1, {}),
    ("uniform", 100, 9, {}),
    ("uniform", 100, 70, {}),
]


def numbers(d: int, b: int) -> tuple[list[float], list[float]]:
    """The inputs of a case: small whole numbers to sketch (their sums are exact), odd fractions to de-sketch."""
    return [5 * i % 17 - 8.0 for i in range(d)], [(1 - 2 * (k % 2)) / (k + 3) for k in range(b)]


def coordinates(d: int) -> list[int]:
    """The coordinates of a de-sketched vector that are kept: all of a short one, 64 of a long one."""
    return list(range(d)) if d <= 200 else sorted({*range(0, d, d // 62), d - 1})


def case(name: str, d: int, b: int, options: dict[str, int | str]) -> dict[str, object]:
    R = draw(name, d=d, b=b, key=KEY, **options)
    g, s = numbers(d, b)
    kept = coordinates(d)
    outputs = {}
    for dtype in ("<f4", "<f8"):
        desketched = R.desketch(np.array(s, dtype=dtype))[kept]
        outputs[dtype[1:]] = {
            "sketch": R.sketch(np.array(g, dtype=dtype)).astype(dtype).tobytes().hex(),
            "desketch": desketched.astype(dtype).tobytes().hex(),
        }
    return {"family": name, "d": d, "b": b, "options": options, "key": KEY.bits.hex(), **outputs}


def vectors() -> dict[str, list[object]]:
    radius, angle = (
        np.array(w, dtype=np.uint32) for w in zip(*((u, v) for u in NORMALS for v in NORMALS), strict=True)
    )
    keys = []
    for seed, path in PATHS:
        key = Key(seed).fold_in(*path)
        given = {"bytes": seed.hex()} if isinstance(seed, bytes) else seed
        keys.append({"seed": given, "path": path, "key": key.bits.hex(), "fingerprint": f"{key.fingerprint():08x}"})
    key = KEY.bits.hex()
    n = POINTS[-1] + 1
    return {
        "keys": keys,
        "words": [
            {
                "key": key,
                "stream": stream,
                "start": start,
                "words": [f"{w:08x}" for w in KEY.words(n, start, stream=stream)],
            }
            for stream, start, n in WORDS
        ],
        "signs": [{"key": key, "table": j, "x": POINTS, "sign": signs(KEY, n, j)[POINTS].tolist()} for j in (0, 3)],
        "buckets": [
            {"key": key, "table": j, "m": m, "x": POINTS, "bucket": buckets(KEY, n, m, j)[POINTS].tolist()}
            for j, m in ((0, 1000003), (2, 64), (1, 2**31))
        ],
        "subsets": [{"key": key, "n": n, "b": b, "rows": subset(KEY, n, b).tolist()} for n, b in SUBSETS],
        "normals": [
            {"words": [f"{u:08x}", f"{v:08x}"], "normals": [f"{x.view(np.uint32):08x}", f"{y.view(np.uint32):08x}"]}
            for u, v, x, y in zip(radius, angle, *normals(radius, angle), strict=True)
        ],
        "sketches": [case(*arguments) for arguments in CASES],
    }


def lines(document: dict[str, list[object]]) -> str:
    """One vector a line."""
    parts = [
        f' "{name}": [\n' + ",\n".join(f"  {json.dumps(v)}" for v in rows) + "\n ]" for name, rows in document.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    os.environ["DESKETCH_KERNELS"] = "reference"
    PATH.write_text(lines(vectors()))
