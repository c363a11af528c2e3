"""``desketch audit-dp``: attack the shipped mechanism and hold the result against its claim."""

from __future__ import annotations

from typing import Any

import typer

from desketch.cli.document import emit
from desketch.errors import InputError
from desketch.privacy.events import check_delta, check_positive

app = typer.Typer(
    add_completion=False,
    help="Attack the shipped mechanism end to end; report a lower bound on epsilon beside the claim.",
)

_CANARIES = 256


@app.command()
def audit_dp(
    mechanism: str = typer.Option("sketch-clip", help="sketch-clip or per-step."),
    unit: str = typer.Option("client", help="client or example."),
    noise_multiplier: float = typer.Option(..., help="Noise standard deviation over the clip, z."),
    clip: float = typer.Option(1.0, help="The clip C; the guarantee does not depend on it."),
    delta: float = typer.Option(..., help="Delta; there is no default."),
    draws: int = typer.Option(5000, min=200, help="Releases with, and without, the unit; per adversary."),
    confidence: float = typer.Option(0.999, help="Of the lower bounds together."),
    family: str = typer.Option("srht", help="Sketch family."),
    codec: str = typer.Option("f32", help="Codec of the frames, both ways."),
    one_run: bool = typer.Option(False, "--one-run", help="Add the one-run audit (client level; report only)."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Run one release many times on worst-case neighbours; exit with code 1 if the claim is refuted."""
    check_delta(delta)
    check_positive("noise_multiplier", noise_multiplier)
    check_positive("clip", clip)
    from desketch.verify.mechanisms import SCENES, audit_scene, one_run_audit

    if (mechanism, unit) not in SCENES:
        raise InputError(f"no mechanism {mechanism!r} for unit {unit!r}; known: {sorted(SCENES)}")
    kind, build = SCENES[mechanism, unit]
    scene = kind(make=lambda t: build(clip, noise_multiplier, kind.d), family=family, codec=codec)
    results = audit_scene(scene, draws=draws, delta=delta, confidence=confidence)
    document: dict[str, Any] = {
        "claim": scene.make(0).claim,
        "claimed_epsilon": results[0].claimed_epsilon,
        "lower_bound": max(result.lower_bound for result in results),
        "violation": any(result.violation for result in results),
        "adversaries": [result.to_dict() for result in results],
    }
    if one_run:
        document["one_run"] = one_run_audit(clip, noise_multiplier, delta, canaries=_CANARIES, confidence=confidence)
    emit(document, json_to, lambda: _table(document))
    if document["violation"]:
        raise typer.Exit(1)


def _table(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    claim = document["claim"]
    table = Table("adversary", "lower bound on epsilon", "without GDP", "claimed", "verdict", title=claim["mechanism"])
    for row in document["adversaries"]:
        verdict = "[red]REFUTED[/]" if row["violation"] else "consistent"
        numbers = [f"{row[name]:.3f}" for name in ("lower_bound", "direct", "claimed_epsilon")]
        table.add_row(row["adversary"], *numbers, verdict)
    Console().print(table)
    if "one_run" in document:
        one = document["one_run"]
        Console().print(f"one run, {one['canaries']} canaries: epsilon > {one['lower_bound']:.3f} (report only)")
