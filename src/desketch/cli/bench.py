"""``desketch bench``: measure kernels, engine and scale against peers, or the robust rules against attacks."""

from __future__ import annotations

import typer

from desketch.cli.bench_engine import engine
from desketch.cli.bench_kernels import kernels
from desketch.cli.bench_robust import robust
from desketch.cli.bench_scale import scale

app = typer.Typer(
    add_completion=False,
    help="Measure kernels, engine and scale against peers, or the robust rules against attacks.",
    no_args_is_help=True,
)


@app.callback()
def bench() -> None:
    """Measure, interleaved with the peers, as multiples of one read of the data."""


app.command("kernels")(kernels)
app.command("engine")(engine)
app.command("robust")(robust)
app.command("scale")(scale)
