"""Sketch spec v1 once more, docs/spec.md line by line: plain Python numbers, nothing of desketch, no NumPy.

A value of float32 is kept in a Python float and rounded after every operation; float64 needs no rounding.
"""

import functools
import hashlib
import math
import struct

SEED, BUCKET, SIGN, SAMPLE = range(4)
LOW = 0xFFFFFFFF


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def float64(x):
    return x


# Keys


def step_bytes(step):
    if isinstance(step, int):
        size = len(bin(abs(step))[2:].lstrip("0")) // 8 + 1
        tag, body = b"i", step.to_bytes(size, "little", signed=True)
    elif isinstance(step, str):
        tag, body = b"s", step.encode()
    else:
        tag, body = b"b", step
    return tag + struct.pack("<Q", len(body)) + body


def digest(parent, tail):
    return hashlib.sha256(b"desketch key v1\0" + bytes([len(parent)]) + parent + tail).digest()[:16]


def derive(seed, path=()):
    bits = digest(b"", step_bytes(seed))
    for step in path:
        bits = digest(bits, step_bytes(step))
    return bits


def fingerprint(key):
    return digest(key, b"fingerprint")[:4]


# Words


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & LOW, p >> 32 ^ c[3] ^ k[1], p & LOW]
        k = [(k[0] + 0x9E3779B9) & LOW, (k[1] + 0xBB67AE85) & LOW]
    return c


@functools.lru_cache(maxsize=1 << 17)
def word(key, stream, i):
    k = struct.unpack("<4I", key)
    q, j, lane = i // 64, i // 16 % 4, i % 16
    return philox((16 * q + lane, stream, k[2], k[3]), k[:2])[j]


# Hashes


def times(x, y):
    product = 0
    for k in range(32):
        if y >> k & 1:
            product ^= x
        x <<= 1
        if x >> 32:
            x ^= 0x10000008D
    return product


def parity(x):
    return bin(x).count("1") % 2


class Signs:
    """sign(x) of one table; the seed words are read once."""

    def __init__(self, key, table):
        self.key, self.table = key, table
        self.s = [word(key, 4 * table + SEED, i) for i in range(3)]

    def __call__(self, x):
        s0, s1, s2 = self.s
        noise = word(self.key, 4 * self.table + SIGN, x // 32) >> x % 32
        bit = (s0 ^ noise) & 1 ^ parity(s1 & x) ^ parity(s2 & times(times(x, x), x))
        return -1 if bit else 1


class Buckets:
    """bucket(x) in [m] of one table; the seed words are read once."""

    def __init__(self, key, table, m):
        self.key, self.table, self.m = key, table, m
        seed = [word(key, 4 * table + SEED, i) for i in range(4, 68)]
        self.a = [(seed[2 * k] + (seed[2 * k + 1] << 32)) * m >> 64 for k in range(32)]

    def __call__(self, x):
        h = self.a[0] + sum(self.a[k + 1] for k in range(31) if x >> k & 1)
        return (h + (word(self.key, 4 * self.table + BUCKET, x) * self.m >> 32)) % self.m


def subset(key, n, b):
    wanted, taken, i = min(b, n - b), set(), 0
    while len(taken) < wanted:
        product = word(key, SAMPLE, i) * n
        if product % 2**32 >= 2**32 % n:
            taken.add(product >> 32)
        i += 1
    return sorted(taken if wanted == b else set(range(n)) - taken)


# Normals

LOG = [-0.5000149011611938, 0.3331545293331146, -0.24898795783519745]
LOG += [0.20496486127376556, -0.18750451505184174, 0.11953793466091156]
SIN = [-0.16666582226753235, 0.008329201489686966, -0.0001922443916555494]
COS = [-0.4999984800815582, 0.041653718799352646, -0.0013567276764661074]


def as_bits(x):
    return struct.unpack("<i", struct.pack("<f", x))[0]


def from_bits(i):
    return struct.unpack("<f", struct.pack("<i", i))[0]


def polynomial(coefficients, x):
    y = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        y = float32(float32(y * x) + c)
    return y


def normal_pair(u, v):
    f = float32(float32(u >> 1) + 0.5)
    i = as_bits(f) - 0x3F3504F3
    e = float32(31 - (i >> 23))
    t = float32(from_bits((i & 0x7FFFFF) + 0x3F3504F3) - 1)
    log = float32(t + float32(float32(t * t) * polynomial(LOG, t)))
    r = float32(math.sqrt(float32(float32(e * float32(math.log(2))) - log)))
    quarter = v << 2 & LOW
    signed = quarter - (1 << 32) if quarter >> 31 else quarter
    phi = float32(float32(signed) * float32(math.pi / 2**33))
    z = float32(phi * phi)
    sine = float32(phi + float32(float32(phi * z) * polynomial(SIN, z)))
    cosine = float32(1 + float32(z * polynomial(COS, z)))
    first, second = float32(r * float32(cosine - sine)), float32(r * float32(cosine + sine))
    return (-first if v >> 31 else first), (-second if v >> 30 & 1 else second)


# Families: each has rows of R0, the scale of every row, and the transpose in the spec's order of rounding


class Dense:
    def __init__(self, key, d, b):
        self.d, self.b, self.scales = d, b, [1 / math.sqrt(b)] * b
        self.rows = [self.row(key, k) for k in range(b)]

    def sums(self, g, _):
        return [math.fsum(r * x for r, x in zip(row, g, strict=True)) for row in self.rows]

    def transpose(self, scaled, _):
        return [math.fsum(self.rows[k][i] * scaled[k] for k in range(self.b)) for i in range(self.d)]


class Gaussian(Dense):
    def row(self, key, k):
        entries = []
        for i in range(self.d):
            q, half, second, lane = i // 64, i // 32 % 2, i // 16 % 2, i % 16
            at = 64 * q + 32 * half + lane
            pair = normal_pair(word(key, 4 * k + SAMPLE, at), word(key, 4 * k + SAMPLE, at + 16))
            entries.append(pair[second])
        return entries


class Ams(Dense):
    def row(self, key, k):
        sign = Signs(key, k)
        return [sign(i) for i in range(self.d)]


class Hashed:
    """The sparse families: layer j puts sign_j(i) into one row of table j."""

    def __init__(self, key, d, b, layout, tables):
        self.b, blocked = b, layout == "block" and min(m for _, m in tables) >= 64
        signs = [Signs(key, j) for j in range(len(tables))]
        self.columns = []
        for i in range(d):
            x, lane = (i // 64, i % 64) if blocked else (i, 0)
            rows = [first + (h + lane) % m for h, (first, m) in zip(self.offsets(x), tables, strict=True)]
            self.columns.append([(row, sign(i)) for row, sign in zip(rows, signs, strict=True)])

    def sums(self, g, rounded):
        out = [0.0] * self.b
        for x, column in zip(g, self.columns, strict=True):
            for row, sign in column:
                out[row] = rounded(out[row] + sign * x)
        return out

    def transpose(self, scaled, rounded):
        return [functools.reduce(lambda x, y: rounded(x + y), [v * scaled[k] for k, v in c]) for c in self.columns]


class Sparse1(Hashed):
    def __init__(self, key, d, b, nnz=None, layout="block"):
        nnz = min(4, b) if nnz is None else nnz
        self.scales = [1 / math.sqrt(nnz)] * b
        self.buckets = [Buckets(key, j, b - nnz + j + 1) for j in range(nnz)]
        super().__init__(key, d, b, layout, [(0, b)] * nnz)

    def offsets(self, x):
        taken = []
        for bucket in self.buckets:
            u = bucket(x)
            taken.append(bucket.m - 1 if u in taken else u)
        return taken


class CountSketch(Sparse1):
    def __init__(self, key, d, b, layout="block"):
        super().__init__(key, d, b, 1, layout)


class Sparse2(Hashed):
    def __init__(self, key, d, b, nnz=None, layout="block"):
        nnz = min(4, b) if nnz is None else nnz
        edges = [j * b // nnz for j in range(nnz + 1)]
        tables = [(edges[j], edges[j + 1] - edges[j]) for j in range(nnz)]
        self.scales = [math.sqrt(m / b) for _, m in tables for _ in range(m)]
        self.buckets = [Buckets(key, j, m) for j, (_, m) in enumerate(tables)]
        super().__init__(key, d, b, layout, tables)

    def offsets(self, x):
        return [bucket(x) for bucket in self.buckets]


class Uniform:
    def __init__(self, key, d, b):
        self.d, self.b, self.scales = d, b, [math.sqrt(d / b)] * b
        self.rows, sign = subset(key, d, b), Signs(key, 0)
        self.signs = [sign(k) for k in range(b)]

    def sums(self, g, _):
        return [sign * g[i] for sign, i in zip(self.signs, self.rows, strict=True)]

    def transpose(self, scaled, _):
        out = [0.0] * self.d
        for k, i in enumerate(self.rows):
            out[i] = self.signs[k] * scaled[k]
        return out


def power_of_two(x):
    n = 1
    while n < x:
        n *= 2
    return n


def butterflies(x, rounded):
    h = 1
    while h < len(x):
        for i in range(len(x)):
            if not i & h:
                x[i], x[i + h] = rounded(x[i] + x[i + h]), rounded(x[i] - x[i + h])
        h *= 2


class Srht:
    def __init__(self, key, d, b, block=None):
        self.d, self.b = d, b
        whole = block is None or block >= d
        self.size = power_of_two(d) if whole else block
        self.segment = min(self.size, max(8192, power_of_two(b))) if whole else block
        self.count, transforms = self.size // self.segment, -(-d // self.size)
        self.scales = [math.sqrt(transforms / b)] * b
        self.rows, sign = subset(key, self.size * transforms, b), Signs(key, 0)
        self.signs = [sign(i) for i in range(d)]

    def places(self):
        """Of every kept row: its transform, its number lo in a segment's transform, and hi."""
        for r in self.rows:
            inside = r % self.size
            yield r // self.size, inside // self.count, inside % self.count

    def segments(self):
        for first in range(0, self.d, self.segment):
            yield first, first // self.size, first % self.size // self.segment

    def sums(self, g, rounded):
        out = [0.0] * self.b
        for first, transform, c in self.segments():
            here = range(first, min(first + self.segment, self.d))
            x = [self.signs[i] * g[i] for i in here] + [0.0] * (self.segment - len(here))
            butterflies(x, rounded)
            for k, (t, lo, hi) in enumerate(self.places()):
                if t == transform:
                    out[k] = rounded(out[k] + (-x[lo] if parity(hi & c) else x[lo]))
        return out

    def transpose(self, scaled, rounded):
        out = []
        for first, transform, c in self.segments():
            x = [0.0] * self.segment
            for k, (t, lo, hi) in enumerate(self.places()):
                if t == transform:
                    x[lo] = rounded(x[lo] + (-scaled[k] if parity(hi & c) else scaled[k]))
            butterflies(x, rounded)
            out += [self.signs[i] * x[i - first] for i in range(first, min(first + self.segment, self.d))]
        return out


class Hartley:
    """srht with transform fourier: float64 throughout, rounded once at the end, so every scale is in the entries."""

    def __init__(self, key, d, b):
        self.d, self.b, self.scales = d, b, [1.0] * b
        self.rows, sign = subset(key, d, b), Signs(key, 0)
        self.signs = [sign(i) for i in range(d)]

    def entry(self, k, i):
        angle = 2 * math.pi * (self.rows[k] * i % self.d) / self.d
        return self.signs[i] * (math.cos(angle) + math.sin(angle)) / math.sqrt(self.b)

    def sums(self, g, _):
        return [math.fsum(self.entry(k, i) * g[i] for i in range(self.d)) for k in range(self.b)]

    def transpose(self, s, _):
        return [math.fsum(self.entry(k, i) * s[k] for k in range(self.b)) for i in range(self.d)]


def srht(key, d, b, block=None, transform="hadamard"):
    return Hartley(key, d, b) if transform == "fourier" else Srht(key, d, b, block)


FAMILIES = {
    "gaussian": Gaussian,
    "srht": srht,
    "ams": Ams,
    "countsketch": CountSketch,
    "sparse1": Sparse1,
    "sparse2": Sparse2,
    "uniform": Uniform,
}


def sketch(R, g, rounded):
    return [rounded(x * rounded(a)) for x, a in zip(R.sums(g, rounded), R.scales, strict=True)]


def desketch(R, s, rounded):
    scaled = [rounded(x * rounded(a)) for x, a in zip(s, R.scales, strict=True)]
    return [rounded(x) for x in R.transpose(scaled, rounded)]
