"""``desketch plan``: which sketch, how many local steps, which step sizes and codec, for a target and a link; no torch.

``--from-run`` and ``--model``/``--task`` alone import torch, to estimate the constants from a model and its data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from click.core import ParameterSource

from desketch.cli.document import emit
from desketch.cli.plan_constants import gather
from desketch.cli.plan_show import show
from desketch.cli.units import bits_per_second, count, seconds
from desketch.errors import InputError
from desketch.theory import Problem
from desketch.theory.answer import answer
from desketch.theory.link import CODECS, Link
from desketch.theory.planner import Question

_INTRODUCTION = """desketch plan says how many numbers to send, in which code, how often, and what that costs.

  desketch plan --model mlp:64 --task digits      estimate what is needed from your model and data
  desketch plan --from-run runs/NAME              ... or from the folder that desketch train printed
  desketch plan --params 1e6 --clients 20 --smoothness 1 --distance 10 --spread 1 --target-error 1e-3
                                                  ... or give the constants of the theorems yourself

Add your link (--uplink 500kbit --latency 100ms) and what to save (--objective bits); --help lists all options."""

app = typer.Typer(
    add_completion=False, help="Choose sketch, local steps, step sizes and codec for a target error and a link."
)


@app.command(name="plan")
def plan_command(
    ctx: typer.Context,
    target_error: float | None = typer.Option(
        None,
        help="Target: f - f* (convex) or |grad f|² (non-convex); a tenth of the start where constants are estimated.",
    ),
    from_run: Path | None = typer.Option(None, help="Estimate the constants from a run folder of `desketch train`."),
    model: str | None = typer.Option(None, help="Estimate the constants for this model: softmax, mlp:H, cnn, ..."),
    task: str | None = typer.Option(None, help="... on this task: digits, idx:FOLDER, npz:FILE or csv:FILE."),
    partition: str | None = typer.Option(None, help="... split like this: iid, dirichlet:A, shards:K or column:NAME."),
    params: str | None = typer.Option(None, help="Parameters d, e.g. 1e6."),
    clients: str | None = typer.Option(None, help="Clients N."),
    smoothness: float | None = typer.Option(None, help="Smoothness L of every client's objective."),
    strong_convexity: str = typer.Option("non-convex", help="mu; 0 for merely convex; or non-convex."),
    distance: float | None = typer.Option(None, help="|w0 - w*|."),
    gap: float | None = typer.Option(None, help="f(w0) - f*; L·distance²/2 when not given."),
    heterogeneity: float | None = typer.Option(
        None, help="Root mean square of |grad f_c(w*)|; of |grad f_c - grad f| at every w for a non-convex objective."
    ),
    spread: float | None = typer.Option(None, help="Bound on the rms of |grad f_c - grad f| at every w, if known."),
    gradient_bound: float | None = typer.Option(None, help="G >= |grad f_c|, for K > 1 on non-convex objectives."),
    trace_ratio: float | None = typer.Option(None, help="tr(H)/λ_max of the Hessian: adds the plan by curvature."),
    gradient_noise: float | None = typer.Option(None, help="Rms error of a mini-batch gradient; 0: full gradients."),
    noise_multiplier: float = typer.Option(0.0, help="z of client-level privacy noise at the server."),
    clip: float = typer.Option(0.0, help="Clip of a client's mean gradient in a round, for the privacy noise."),
    uplink: str = typer.Option("1Mbit", help="A client's uplink, e.g. 500kbit."),
    downlink: str = typer.Option("5Mbit", help="A client's downlink."),
    latency: str = typer.Option("50ms", help="One way."),
    step_time: str = typer.Option("0", help="One local step, e.g. 20ms."),
    participation: float = typer.Option(1.0, help="Share of the clients heard in a round."),
    local_steps: int | None = typer.Option(None, help="K, when it is not to be chosen."),
    codec: str | None = typer.Option(
        None, help="f32, f16, int8, int4, sign1 or trellis1 to trellis3, when it is not to be chosen."
    ),
    objective: str = typer.Option("time", help="What to save: bits, time or rounds."),
    json_to: str | None = typer.Option(None, "--json", help="Write one JSON document to a file, or to stdout with -."),
) -> None:
    """Plan a run by the theorems, by the curvature law where tr(H)/λ_max is known, and without sketching."""
    if all(ctx.get_parameter_source(name) is ParameterSource.DEFAULT for name in ctx.params):
        typer.echo(_INTRODUCTION)
        return
    mu = _mu(strong_convexity)
    N = None if clients is None else count(clients)
    estimate = model is not None or task is not None or partition is not None
    found = gather(
        {
            "d": None if params is None else count(params),
            "N": N,
            "L": smoothness,
            "distance": distance,
            "gap": gap,
            "sigma_star": heterogeneity,
            "zeta": spread,
            "G": gradient_bound,
            "trace_ratio": trace_ratio,
            "gradient_noise": gradient_noise,
            "eps": target_error,
        },
        convex=mu is not None,
        run=from_run,
        settings={"model": model, "task": task, "partition": partition, "clients": N if estimate else None},
        full_gradient=gradient_noise == 0,
    )
    constants = found.values
    question = Question(
        problem=_problem(mu, constants),
        link=Link(
            uplink=bits_per_second(uplink),
            downlink=bits_per_second(downlink),
            latency=seconds(latency),
            step_seconds=seconds(step_time),
        ),
        participation=participation,
        objective=objective,
        K=local_steps,
        codecs=tuple(CODECS) if codec is None else (codec,),
        noise_multiplier=noise_multiplier,
        clip=clip,
        **{name: constants[name] for name in ("d", "N", "eps", "trace_ratio", "gradient_noise")},
    )
    document = answer(question, found.origins)
    document["notes"] += _measured(from_run)
    emit(document, json_to, lambda: show(document))


def _measured(run: Path | None) -> list[str]:
    """What the run itself measured of its messages and of a lone client, in words; private runs measure nothing."""
    notes: list[str] = []
    if run is not None and (run / "metrics.jsonl").is_file():
        from desketch.core.rows import read_rows
        from desketch.fed.signal import first_rounds, sentence

        signal = first_rounds(read_rows(run / "metrics.jsonl").rows)
        notes += [f"{sentence(signal)} (measured in {run})"] if signal else []
    if run is not None and (run / "summary.json").is_file():
        alone = json.loads((run / "summary.json").read_text()).get("alone")
        notes += [f"{alone['advice']} (measured in {run})"] if alone else []
    return notes


def _problem(mu: float | None, constants: dict[str, Any]) -> Problem:
    return Problem(mu=mu, **{name: constants[name] for name in ("L", "distance", "gap", "sigma_star", "zeta", "G")})


def _mu(text: str) -> float | None:
    if text == "non-convex":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--strong-convexity is a number or non-convex, got {text!r}") from None
