"""How a plan is printed: the advice, constants and their origins, plans side by side, corollaries, growth, notes."""

from __future__ import annotations

from typing import Any

from desketch.theory.answer import size

__all__ = ["show"]

_LAWS = {"theorem": "worst case", "curvature": "by curvature", "no sketch": "no sketch"}
_WORDS = {
    "theorem": "alpha of the family",
    "curvature": "tr(H)/λ_max in place of d",
    "no sketch": "local GD sending all numbers, f32",
}
_NAMES = {
    "d": "parameters d",
    "N": "clients N",
    "L": "smoothness L",
    "trace_ratio": "tr(H)/λ_max",
    "sigma_star": "heterogeneity",
    "zeta": "spread of clients",
    "gradient_noise": "mini-batch noise",
    "distance": "|w0 - w*|",
    "gap": "f(w0) - f*",
    "G": "gradient bound G",
    "eps": "target error",
}


def show(document: dict[str, Any]) -> None:
    """Print to the terminal; long words are folded, nothing is cut."""
    from rich.console import Console

    console = Console()
    console.print(document["advice"], style="bold", highlight=False)
    for table in (_constants(document), _plans(document)):
        if table is not None:
            console.print(table)
    for law, p in _columns(document):
        console.print(f"{_LAWS[law]}: {_WORDS[law]}; {p['theorem']}", highlight=False, soft_wrap=False)
    for table in (_communication(document), *_growth(document)):
        if table is not None:
            console.print(table)
    for note in document["notes"]:
        console.print(f"note: {note}", highlight=False)


def _table(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _constants(document: dict[str, Any]) -> Any:
    if not document["estimated"]:
        return None
    table = _table("constants that were estimated", "constant", "value", "how")
    values = document["question"] | document["question"]["problem"] | {"eps": document["question"]["target_error"]}
    for name, origin in document["estimated"].items():
        if name in _NAMES:
            value = values[name]
            table.add_row(_NAMES[name], f"{value:,}" if isinstance(value, int) else f"{value:.4g}", origin)
    return table


def _columns(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [*document["plans"].items(), ("no sketch", document["local_gd"])]


def _plans(document: dict[str, Any]) -> Any:
    columns = _columns(document)
    target = document["question"]["target_error"]
    table = _table(
        f"least {document['question']['objective']} to target error {target:.3g}",
        "",
        *(_LAWS[law] for law, _ in columns),
    )
    for label, render in _ROWS:
        table.add_row(label, *(render(p) for _, p in columns))
    return table


def _communication(document: dict[str, Any]) -> Any:
    found = document["communication"]
    if "none" in found:
        return f"communication: {found['none']}"
    table = _table("communication, as in the paper's corollaries", "", "sketched", "local GD")
    measure = found["compare_with_local_gd"]
    table.add_row(
        "order of growth (numbers)", f"{found['order_of_growth']:.3g}", f"{found['order_of_growth_local_gd']:.3g}"
    )
    table.add_row(
        f"rounds at K = {measure['K']}, b = {measure['b']:,}",
        f"{measure['sketched']['T']:,}",
        f"{measure['plain']['T']:,}",
    )
    table.add_row("bits of payload, same codec", _bits(measure["sketched_bits"]), _bits(measure["plain_bits"]))
    if "linear_rate_down_to" in found:
        table.add_row("linear rate down to", f"{found['linear_rate_down_to']:.3g}", "")
        table.add_row("  as the paper remarks, σ²/(μd²)", f"{found['linear_rate_in_the_paper']:.3g}", "")
    return table


def _growth(document: dict[str, Any]) -> list[Any]:
    tables = []
    for axis in ("d", "N"):
        table = _table(f"growth with {axis}", axis, "family", "b", "codec", "K", "rounds", "bits", "time")
        for row in document["growth"][axis]:
            cells = (row["family"], f"{row['b']:,}", row["codec"], str(row["K"]), f"{row['T']:,}")
            table.add_row(f"10^{len(str(row[axis])) - 1}", *cells, _bits(row["bits"]), _duration(row["seconds"]))
        tables.append(table)
    return tables


def _bits(bits: float) -> str:
    for unit in ("bit", "kbit", "Mbit", "Gbit", "Tbit", "Pbit"):
        if bits < 1000:
            return f"{bits:.3g} {unit}"
        bits /= 1000
    return f"{bits:.3g} Ebit"


def _duration(total: float) -> str:
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if total >= length:
            return f"{total / length:.3g} {unit}"
    return f"{total:.3g} s"


_ROWS: tuple[tuple[str, Any], ...] = (
    ("family", lambda p: p["family"]),
    ("sketch size b", lambda p: f"{p['b']:,} ({p['compression']:.4g}x)"),
    ("codec", lambda p: p["codec"]),
    ("local steps K", lambda p: str(p["K"])),
    ("rounds T", lambda p: f"{p['T']:,}"),
    ("eta_local", lambda p: f"{p['eta_local']:.4g}"),
    ("eta_global", lambda p: f"{p['eta_global']:g}"),
    ("alpha (with noise)", lambda p: f"{p['alpha']:.4g} ({p['alpha_on_the_wire']:.4g})"),
    ("bound on the error", lambda p: f"{p['bound']:.3g}"),
    ("bytes per client", lambda p: size(p["bytes_per_client"])),
    ("total bits", lambda p: _bits(p["bits"])),
    ("time on the link", lambda p: _duration(p["seconds"])),
    ("what binds", lambda p: "; ".join(p["binds"])),
)
