"""``desketch train``: one run of Algorithm 1 on this machine, with a run folder that explains and can resume it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from signal import Signals

import typer

from desketch.core.files import read_sealed
from desketch.errors import ConfigError, InputError, RunError

_data = partial(typer.Option, rich_help_panel="Data and model")
_clients = partial(typer.Option, rich_help_panel="Clients")
_wire = partial(typer.Option, rich_help_panel="Wire")
_server = partial(typer.Option, rich_help_panel="Server")
_privacy = partial(typer.Option, rich_help_panel="Privacy")
_without = partial(typer.Option, rich_help_panel="Without a server")
_run = partial(typer.Option, rich_help_panel="Run")

app = typer.Typer(add_completion=False, help="Train a model across clients; every message is a sketch.")


@app.command()
def train(
    task: str | None = _data(None, help="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE."),
    label: str | None = _data(None, help="Label column of a CSV file, or several: a,b,c (multi-label)."),
    goal: str | None = _data(None, help="classification, regression or multilabel; default: by the labels."),
    level: str | None = _data(None, help="Symbols of a text: char or byte."),
    context: int | None = _data(None, help="Symbols of a text that a model sees at once."),
    model: str | None = _data(None, help="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LxW or module:function."),
    clients: int | None = _clients(None, help="Number of clients N."),
    partition: str | None = _clients(None, help="iid, dirichlet:A, shards:K or column:NAME."),
    fraction: float | None = _clients(None, help="Share of the clients asked in a round."),
    dropout: float | None = _clients(None, help="Rate of asked clients that never answer."),
    straggler: float | None = _clients(None, help="Rate of asked clients that answer too late."),
    weighting: str | None = _clients(None, help="Weight of a client's update: examples or uniform."),
    rounds: int | None = _server(None, help="Rounds T."),
    local_steps: int | None = _clients(None, help="Local steps K of a round."),
    eta_local: float | None = _clients(None, help="Step size of the local steps."),
    batch_size: str | None = _clients(None, help="Examples of a local step; full: the full gradient."),
    family: str | None = _wire(None, help="Sketch family."),
    compression: float | None = _wire(None, help="d / b."),
    b: int | None = _wire(None, "--b", help="Sketch size; overrides the compression."),
    codec: str | None = _wire(None, help="f32, f16, int8, int4, sign1 or trellis1 to trellis3, both ways."),
    codec_down: str | None = _wire(None, help="Another codec for the broadcast."),
    server_optimizer: str | None = _server(None, help="sgd, momentum, nesterov, adam or amsgrad."),
    eta_global: str | None = _server(None, help="Server step size: auto or a number."),
    momentum: float | None = _server(None, help="Beta of the server optimiser."),
    client_momentum: str | None = _server(
        None, help="Beta of the running mean that a client sends of its updates; 0: off; auto."
    ),
    average: str | None = _server(None, help="Evaluate the mean of the last n rounds, 'all', or 'local' (w-bar)."),
    robust: str | None = _server(
        None,
        help="Averaging rule: norm-bound, rfa, krum:num_malicious_nodes=F, centred-clip, trimmed-mean:beta=B, none.",
    ),
    dp: str | None = _privacy(None, help="Differential privacy: per-step or sketch-clip."),
    dp_unit: str | None = _privacy(None, help="What is protected: client or example."),
    epsilon: float | None = _privacy(None, help="Privacy budget, checked before every release."),
    delta: float | None = _privacy(None, help="Delta of the guarantee; there is no default."),
    clip: float | None = _privacy(None, help="Norm bound C of one unit's contribution."),
    noise_multiplier: float | None = _privacy(None, help="Noise std over C; else calibrated to epsilon."),
    noise_by: str | None = _privacy(None, help="Who adds client-level noise: server or clients."),
    topology: str | None = _without(None, help="Train without a server: ring, grid, tree, ... or file:EDGES."),
    nodes: int | None = _without(None, help="Nodes of the topology; the same as --clients."),
    protocol: str | None = _without(None, help="Averages without a server: tree (exact) or gossip."),
    gossip_steps: int | None = _without(None, help="Gossip exchanges of a round; default by the graph."),
    node_failures: float | None = _without(None, help="Rate of nodes that are down in a round."),
    edge_failures: float | None = _without(None, help="Rate of edges that are down in a round."),
    seed: int | None = _run(None, help="Of weights, partition, shuffles and the public key."),
    evaluate_every: int | None = _run(None, help="Rounds between evaluations."),
    checkpoint_every: str | None = _run(None, help="Rounds between checkpoints, or 'auto'."),
    engine: str | None = _run(None, help="What moves the bytes: in-process or flower-sim."),
    device: str | None = _run(None, help="Torch device."),
    capture: str | None = _run(None, metavar="ROUNDS", help="Keep these rounds' frames for an audit: 1,10."),
    tensorboard: bool | None = _run(None, "--tensorboard", help="Also write TensorBoard events."),
    config: Path | None = _run(None, help="Settings from a YAML or TOML file; flags win."),
    out: Path | None = _run(None, help="Run folder; default: runs/TASK-MODEL-ID."),
    resume: bool = _run(False, "--resume", help="Continue the run in --out, bit for bit."),
    quiet: bool = _run(False, "--quiet", "-q", help="No progress, no table."),
    json_to: str | None = _run(None, "--json", help="Write the summary to a file, or to stdout with -."),
) -> None:
    """Train with the given settings; without any: digits, 20 clients, Dirichlet 0.5, SRHT at 30x, K = 20, 1 bit."""
    given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    given["batch_size"] = _number(batch_size, int) or ("full" if batch_size else None)  # 0 is full too
    given["eta_global"] = _number(eta_global, float)
    given["client_momentum"] = _number(client_momentum, float)
    given["average"] = _number(average, int)
    given["checkpoint_every"] = _number(checkpoint_every, int)
    given["capture"] = None if capture is None else _rounds(capture)
    private = {"mechanism": dp, "unit": dp_unit, "epsilon": epsilon, "delta": delta, "clip": clip}
    private |= {"noise_multiplier": noise_multiplier, "noise_by": noise_by}
    given["dp"] = private if any(value is not None for value in private.values()) else None
    if nodes is not None:
        given["clients"] = _nodes(nodes, clients)
    if resume and out is None:
        raise InputError("--resume needs --out DIR, the folder of the interrupted run")
    if resume and config is None:
        config = _config_of(Path(str(out)))

    from desketch.api.configured import run_path, train_run
    from desketch.cli.document import emit
    from desketch.cli.train_show import show
    from desketch.tasks import RunConfig

    settings = RunConfig.load(config, **{name: value for name, value in given.items() if value is not None})
    if nodes is not None and settings.topology is None:
        raise ConfigError(f"--nodes {nodes} counts the nodes of a topology; add --topology, or say --clients {nodes}")
    path = run_path(settings, out)
    summary = train_run(settings, out=path, resume=resume, progress=not quiet)
    emit(summary, json_to, lambda: show(summary, path), quiet=quiet)
    if summary["stopped_by"] == "interrupt":
        if quiet or json_to == "-":
            ended = f"{summary['signal']} ended the run after round {summary['rounds']}"
            typer.echo(f"{ended}; go on with: desketch train --resume --out {path}", err=True)
        raise typer.Exit(128 + Signals[summary["signal"]])


_DP = frozenset({"dp", "dp_unit", "epsilon", "delta", "clip", "noise_multiplier", "noise_by"})
_NOT_SETTINGS = _DP | {"nodes", "config", "out", "resume", "quiet", "json_to"}


def _nodes(nodes: int, clients: int | None) -> int:
    if clients not in (None, nodes):
        raise InputError(f"--nodes {nodes} and --clients {clients} are the same number; give one of them")
    return nodes


def _number(text: str | None, kind: type[float] | type[int]) -> float | str | None:
    """Read a number where a word is allowed too; the configuration judges the word."""
    try:
        return None if text is None else kind(text)
    except ValueError:
        return text


def _rounds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--capture takes round numbers such as 1,10, got {text!r}") from None


def _config_of(out: Path) -> Path:
    path = out / "config.yaml"
    if not path.is_file() and not (out / "checkpoint").is_dir():
        raise RunError(f"{out} holds no run to resume (no config.yaml); start it without --resume")
    from desketch.tasks.run_settings import refuse_federate

    refuse_federate(out, instead="go on in Python, with ds.federate(..., out=..., resume=True)")
    read_sealed(path, "give the settings of the run once more with --config FILE, beside --resume")
    return path
