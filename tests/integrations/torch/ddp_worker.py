"""One rank of a gloo group: runs a named scenario and writes what it saw; started by test_ddp.py, never collected."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.nn.parallel import DistributedDataParallel

from desketch.errors import RunError
from desketch.integrations.torch import SketchState, sketch_hook
from desketch.keys import Key


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def half(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x[rank:1400:2] / 16.0, dtype=torch.float32), torch.tensor(y[rank:1400:2])


def accuracy(model: nn.Module) -> float:
    x, y = load_digits(return_X_y=True)
    with torch.no_grad():
        guess = model(torch.tensor(x[1400:] / 16.0, dtype=torch.float32)).argmax(1)
    return float((guess == torch.tensor(y[1400:])).float().mean())


def train(rank, state, *, steps, hook=sketch_hook, lr=0.1, seed=1, model=None, optimizer=None, **ddp):
    """A few steps of DDP; the default small bucket cap gives several buckets, which DDP rebuilds after step 0."""
    x, y = half(rank)
    model = model or mlp()
    parallel = DistributedDataParallel(model, bucket_cap_mb=ddp.pop("bucket_cap_mb", 0.01), **ddp)
    if state is not None:
        parallel.register_comm_hook(state, hook)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    generator = torch.Generator().manual_seed(seed + rank)
    for _ in range(steps):
        i = torch.randint(len(x), (64,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(x[i]), y[i]).backward()
        optimizer.step()
    return model


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def equal_ranks(rank, options):
    """Weights after training with every codec and wrapper, and what the states measured."""
    out = {}
    for name, codec, hook in [
        ("f32", "f32", sketch_hook),
        ("f16", "f16", sketch_hook),
        ("fp16_wrapper", "f32", fp16_compress_wrapper(sketch_hook)),
    ]:
        state = SketchState(family=options["family"], compression=4, key=Key(3), codec=codec, warm_start_iterations=2)
        model = train(rank, state, steps=8, hook=hook)
        out[name] = {"w": flat(model), "stats": state.compression_stats(), "note": state.energy_note()}
    return out


def moments(rank, options):
    """Gradients of one fixed batch under many keys, beside the plain average."""
    x, y = half(rank)
    draws = options["draws"]
    state = SketchState(family=options["family"], compression=8, key=Key(5))
    used = []
    for hook_state in (None, state):
        model = mlp()
        if options.get("weigh") and hook_state is not None:
            state.weigh(model.parameters(), power=options["weigh"])
        parallel = DistributedDataParallel(model, bucket_cap_mb=100)
        if hook_state is not None:
            parallel.register_comm_hook(hook_state, sketch_hook)
        for _ in range(1 if hook_state is None else draws):
            model.zero_grad()
            nn.functional.cross_entropy(parallel(x[:64]), y[:64]).backward()
            used.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).clone())
    return {"plain": used[0], "used": torch.stack(used[1:]), "note": state.energy_note()}


def learn(rank, options):
    """Accuracy of plain DDP and of the hook, same optimiser, same data."""
    plain = train(rank, None, steps=options["steps"], lr=0.1)
    state = SketchState(compression=options["compression"], key=Key(11))
    sketched = train(rank, state, steps=options["steps"], lr=0.1 * options["lr_factor"])
    return {"plain": accuracy(plain), "sketched": accuracy(sketched), "note": state.energy_note(), "w": flat(sketched)}


def resume(rank, options):
    """Three steps, then three more with the state as it is, and with the state and weights out of a pickle."""
    out = {}
    for name, pickled in (("kept", lambda x: x), ("pickled", lambda x: pickle.loads(pickle.dumps(x)))):
        state, model = SketchState(compression=4, key=Key(2)), mlp()
        for part in range(2):
            state, model = pickled(state), pickled(model)
            if options.get("weigh"):
                state.weigh(model.parameters())
            train(rank, state, steps=3, seed=part, model=model)
        out[name] = {"w": flat(model), "step": state.step, "stats": state.compression_stats()}
    return out


def forgotten(rank, options):
    """A restored state that weighed tensors and was not told them again."""
    model = mlp()
    state = SketchState(compression=4, key=Key(2)).weigh(model.parameters())
    train(rank, state, steps=2, model=model)
    try:
        train(rank, pickle.loads(pickle.dumps(state)), steps=1, model=model)
    except (RunError, RuntimeError) as error:
        return {"error": str(error)}
    return {"error": None}


def strangers(rank, options):
    """Weights of another model's parameters."""
    try:
        train(rank, SketchState(compression=4, key=Key(2)).weigh(mlp().parameters()), steps=1)
    except (RunError, RuntimeError) as error:
        return {"error": str(error)}
    return {"error": None}


def mismatch(rank, options):
    """Ranks that disagree about the key are told so."""
    try:
        train(rank, SketchState(compression=4, key=Key(rank)), steps=1)
    except (RunError, RuntimeError) as error:
        return {"error": str(error)}
    return {"error": None}


def overflow(rank, options):
    """An infinite gradient on one rank stays visible on all, as a gradient scaler needs."""
    out = {}
    for codec in ("f32", "f16"):
        model = mlp()
        parallel = DistributedDataParallel(model, bucket_cap_mb=100)
        parallel.register_comm_hook(SketchState(compression=4, key=Key(1), codec=codec), sketch_hook)
        x, y = half(rank)
        loss = nn.functional.cross_entropy(parallel(x[:8]), y[:8])
        (loss * (float("inf") if rank == 0 else 1.0)).backward()
        out[codec] = any(not torch.isfinite(p.grad).all() for p in model.parameters())
    return out


SCENARIOS = {f.__name__: f for f in (equal_ranks, moments, learn, resume, forgotten, strangers, mismatch, overflow)}


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    scenarios = pickle.loads((folder / "scenarios.pkl").read_bytes())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    seen = {name: SCENARIOS[scenario](rank, options) for name, (scenario, options) in scenarios.items()}
    torch.save(seen, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
