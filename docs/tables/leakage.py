"""Tables of docs/leakage.md from ``benchmarks/results/leakage.json``."""

from __future__ import annotations

from typing import Any

_MISSING = "Not measured yet: `python benchmarks/leakage.py --only {}`."


def recovery(result: dict[str, Any]) -> str:
    """Success at b = 1.1 m."""
    return _table(
        result,
        "recovery",
        ("model", "sketch", "b", "recovered", "labels read", "median PSNR", "CPU seconds"),
        lambda r: (r["model"], r["family"], r["b"], _rate(r), f"{r['labels_right']}/{r['seeds']}", _db(r), _sec(r)),
    )


def threshold(result: dict[str, Any]) -> str:
    """Where recovery sets in, measured and predicted."""
    return _table(
        result,
        "threshold",
        ("model", "attack", "predicted by", "predicted b", "measured b", "off by"),
        lambda r: (
            r["model"],
            r["attack"],
            r["predicted_by"],
            f"{r['predicted']:.1f}",
            f"{r['measured']:.1f}",
            f"{r['off_by']:.1%}",
        ),
    )


def side_by_side(result: dict[str, Any]) -> str:
    """Ours on the sketch against the known attacks on the raw gradient."""
    return _table(
        result,
        "side_by_side",
        ("model", "attack", "d/b", "label", "recovered", "median PSNR", "CPU seconds"),
        lambda r: (r["model"], r["attack"], r["compression"], r["label"], _rate(r), _db(r), _sec(r)),
    )


def mixtures(result: dict[str, Any]) -> str:
    """Local steps, batches, clients, rounds."""
    head = ("case", "b", "recovered", "median PSNR", "CPU seconds")
    return _table(result, "mixtures", head, lambda r: (r["case"], r["b"], _rate(r), _db(r), _sec(r)))


def trained(result: dict[str, Any]) -> str:
    """A trained network at d/b = 32."""
    head = ("attack", "recovered", "median PSNR", "CPU seconds")
    return _table(result, "trained", head, lambda r: (r["attack"], _rate(r), _db(r), _sec(r)))


def noise(result: dict[str, Any]) -> str:
    """The attack against the Bayesian bound."""
    return _table(
        result,
        "noise",
        ("d/b", "noise std / gradient norm", "attack", "clamped to the box", "Bayesian bound", "Cramér-Rao", "gap, dB"),
        lambda r: (
            r["compression"],
            f"{r['relative_noise']:g}",
            *(f"{r[k]:.1f}" for k in ("psnr_attack", "psnr_clamped", "psnr_bound", "psnr_cramer_rao")),
            f"{r['gap_db']:+.1f}",
        ),
    )


def large(result: dict[str, Any]) -> str:
    """28x28 at d/b = 16."""
    if "large" not in result:
        return _MISSING.format("large")
    r = result["large"]
    return (
        f"LeNet on 28x28 pictures, d = {r['d']:,}, b = {r['b']}: {_rate(r)} recovered, {_sec(r)} CPU seconds each "
        f"(worst {r['seconds_max']:.1f})."
    )


def traps(result: dict[str, Any]) -> str:
    """Two ways to fool oneself."""
    head = ("what was attacked", "median PSNR", "median loss / |s|²")
    return _table(result, "traps", head, lambda r: (r["case"], _db(r), f"{r['loss_median']:.1e}"))


def codecs(result: dict[str, Any]) -> str:
    """What the codec takes away."""
    head = ("codec", "recovered", "median PSNR", "Bayesian bound")
    return _table(result, "codecs", head, lambda r: (r["codec"], _rate(r), _db(r), f"{r['psnr_bound']:.1f} dB"))


def _table(result: dict[str, Any], part: str, head: tuple[str, ...], cells: Any) -> str:
    if part not in result:
        return _MISSING.format(part)
    lines = [head, ["---"] * len(head), *(cells(row) for row in result[part])]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _rate(row: dict[str, Any]) -> str:
    return f"{row['success']}/{row['seeds']}"


def _db(row: dict[str, Any]) -> str:
    return f"{row['psnr_median']:.0f} dB"


def _sec(row: dict[str, Any]) -> str:
    return f"{row['seconds_median']:.2f}"
