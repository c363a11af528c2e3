"""Codes of a bit or less a number on Gaussian vectors: what they keep, beside what any code can keep, and CPU time.

    python benchmarks/thin_codes.py --json benchmarks/results/thin_codes.json

``kept`` is the share of a vector's energy that the nearest multiple of its decoded message has; ``bound`` what R bits a
number can keep of a long Gaussian vector, 1 - 4^-R (Shannon); ``omega`` E|C(v) - v|²/|v|² of the message as it is sent,
scaled to be unbiased.  Times are CPU microseconds of a whole message, frame and rotation included, in the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from desketch.keys import Key
from desketch.wire import CODEC_TABLE, Header, decode_batch, encode_batch

SIZES = (64, 256, 1696, 16384)
CODES = ("sign1", "trellis1", "trellis2", "trellis3")


def row(codec: str, b: int, *, messages: int) -> dict[str, Any]:
    """One code at one size."""
    rng, bits = np.random.default_rng(b), CODEC_TABLE[codec].bits
    kept, omega, writing, reading = [], [], [], []
    for t in range(messages // 8):
        header = Header(run=1, round=t, family="srht", d=10 * b, b=b, key=Key(1).fold_in("round", t), codec=codec)
        v = rng.standard_normal((8, b)).astype(np.float32)
        keys = [Key(2).fold_in(t, c) for c in range(8)]
        began = time.process_time()
        frames = encode_batch(v, header, rounding=keys, agreed=[1.0] * 8)
        written = time.process_time()
        y = decode_batch(dict(enumerate(frames)), header, agreed={}).values.astype(np.float64)
        reading.append((time.process_time() - written) / 8)
        writing.append((written - began) / 8)
        size = np.square(v, dtype=np.float64).sum(axis=1)
        kept += ((v * y).sum(axis=1) ** 2 / (size * np.square(y).sum(axis=1))).tolist()
        omega += (np.square(y - v).sum(axis=1) / size).tolist()
    return {
        "codec": codec,
        "b": b,
        "bits": bits,
        "bytes": CODEC_TABLE[codec].size(b),
        "bound": 1 - 4.0**-bits,
        "kept": statistics.fmean(kept),
        "omega": statistics.fmean(omega),
        "messages": len(kept),
        "encode_microseconds": 1e6 * statistics.median(writing),
        "decode_microseconds": 1e6 * statistics.median(reading),
    }


def main() -> None:
    """Measure every code at every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the result")
    path = parser.parse_args().json
    rows = [row(codec, b, messages=1600 if b < 2000 else 80) for b in SIZES for codec in CODES]
    result = {"command": "python benchmarks/thin_codes.py --json benchmarks/results/thin_codes.json", "rows": rows}
    for one in rows:
        print(f"{one['b']:6} {one['codec']}: kept {one['kept']:.3f} of {one['bound']:.3f}, omega {one['omega']:.2f}")
    if path:
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
