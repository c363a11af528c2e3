"""Engine "ranks": every worker of a row is a process of a gloo group, on loopback or each in its own namespace.

Bytes are counted twice: by the collectives (payload), and in a bed of namespaces (``--link``) by the interface, headers
and acknowledgements included.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from desketch.integrations.torch import SketchedOuter, SketchState, sketch_hook
from lm_bed import batch, cosine, draws, evaluate, loss_of, make_key, make_model, make_optimizer, parse, shard, texts
from lm_bed import wire_of_row as wire_of
from netbed import Host, bed, missing

_PORT = 29541


class Wiretap:
    """Counts what DDP's collectives carry; the outer step counts its own by the same rule."""

    def __init__(self) -> None:
        self.bytes = 0.0
        plain = dist.all_reduce

        def all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            world = dist.get_world_size(kwargs.get("group"))
            self.bytes += 2 * (world - 1) / world * tensor.numel() * tensor.element_size()
            return plain(tensor, *args, **kwargs)

        dist.all_reduce = all_reduce


def worker(job: dict[str, Any]) -> None:
    """One rank: train, then report losses and bytes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=job["meet"], rank=job["rank"], world_size=job["world"])
    tap = Wiretap()
    symbols, cut = texts(job["texts"])
    data = shard(cut, job["rank"], job["world"], job["shards"])
    model, wrapped, optimizer, outer = build(job, symbols)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine(job))
    draw = draws(job, job["rank"])
    curve, started, clock, watching = [], time.process_time(), time.monotonic(), 0.0
    for step in range(1, job["steps"] + 1):
        loss_of(wrapped, batch(data, job, draw)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if outer is not None:
            outer.step()
        if step % max(1, job["steps"] // 10) == 0 and job["rank"] == 0:
            before = time.monotonic()
            sent = outer.stats.sent + outer.stats.received if outer is not None else 2 * tap.bytes
            loss = evaluate(model, cut, "validation", job)[0]
            watching += time.monotonic() - before
            curve.append([step, round(sent), round(loss, 4), round(time.monotonic() - clock - watching, 2)])
    if outer is not None:
        outer.finish()
    cpu = time.process_time() - started
    stats = (outer.stats.sent, outer.stats.received) if outer is not None else (tap.bytes, tap.bytes)
    report = {
        "bytes": sum(stats),
        "rounds": outer.round if outer is not None else 0,
        "outer": {"outer_lr": outer.nesterov.lr, "outer_momentum": outer.nesterov.momentum} if outer else {},
        "validation": evaluate(model, cut, "validation", job),
        "test": evaluate(model, cut, "test", job),
        "cpu_seconds": round(cpu, 2),
        "curve": curve,
        "d": sum(p.numel() for p in model.parameters()),
    }
    Path(job["folder"], f"rank{job['rank']}.json").write_text(json.dumps(report), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def build(job: dict[str, Any], symbols: int) -> tuple[Any, Any, Any, Any]:
    """Model, what the forward pass calls, inner optimiser and outer step of a row."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    name, settings = parse(job["row"])
    lr = settings.pop("lr", job["lr"])
    model, key = make_model(job, symbols), make_key(job)
    optimizer = make_optimizer(model.parameters(), job, lr=lr)
    if name in ("ddp", "powersgd", "hook"):
        parallel = DistributedDataParallel(model)
        if name == "ddp":
            parallel.register_comm_hook(None, default_hooks.allreduce_hook)
        elif name == "powersgd":
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=settings["rank"], start_powerSGD_iter=2, min_compression_rate=1
            )
            parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            power = settings.pop("weigh", None)
            state = SketchState(key=key, **settings)
            weighed = state if power is None else state.weigh(model.parameters(), power=power)
            parallel.register_comm_hook(weighed, sketch_hook)
        return model, parallel, optimizer, None
    if name == "alone":
        return model, model, optimizer, None
    if name == "auto":
        settings |= {"method": "auto", "steps": job["steps"]}
    else:
        settings["wire"] = wire_of(name, settings)
    settings["overlap"] = bool(settings.get("overlap", False))
    return model, model, optimizer, SketchedOuter(model, optimizer, key=key, **settings)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start the ranks of a row and collect their reports; every rank's model counts, equal or not."""
    link = job.get("link")
    if link and (why := missing()):
        raise SystemExit(f"--link {link}: {why}")
    with (
        tempfile.TemporaryDirectory() as folder,
        bed(job["world"], link) if link else contextlib.nullcontext() as hosts,
    ):
        before = [host.counters() for host in hosts or ()]
        codes = _wait([_start(job, folder, rank, hosts) for rank in range(job["world"])])
        if any(codes):
            raise SystemExit(f"{job['row']}, seed {job['seed']}: ranks ended with {codes}; the rows before are kept")
        after = [host.counters() for host in hosts or ()]
        reports = [json.loads(Path(folder, f"rank{r}.json").read_text()) for r in range(job["world"])]
    interface = [sum(now) - sum(then) for now, then in zip(after, before, strict=True)]
    return {
        **{part: _mean([r[part] for r in reports]) for part in ("validation", "test")},
        "bytes": round(sum(r["bytes"] for r in reports) / len(reports)),
        **({"interface_bytes": round(sum(interface) / len(interface))} if interface else {}),
        "d": reports[0]["d"],
        "rounds": reports[0]["rounds"],
        **reports[0]["outer"],
        "cpu_seconds": [r["cpu_seconds"] for r in reports],
        "curve": reports[0]["curve"],
    }


def _start(job: dict[str, Any], folder: str, rank: int, hosts: list[Host] | None) -> subprocess.Popen[bytes]:
    meet = f"tcp://{hosts[0].address}:{_PORT}" if hosts else f"file://{folder}/meet"
    interface = hosts[rank].interface if hosts else "lo"
    order = json.dumps({**job, "rank": rank, "folder": folder, "meet": meet})
    command = [sys.executable, str(Path(__file__).with_name("language_model.py")), "--worker", order]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
    return subprocess.Popen(hosts[rank].command(command) if hosts else command, env=environment)


def _wait(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    try:
        return [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()


def _mean(rows: list[list[float]]) -> list[float]:
    return [round(sum(column) / len(column), 4) for column in zip(*rows, strict=True)]
