"""One rank of a gloo group with an outer step: runs named scenarios and writes what it saw; see test_outer.py."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from desketch.errors import DesketchError
from desketch.integrations.torch import Dense, SketchedOuter, Sparse
from desketch.integrations.torch import round as rounds
from desketch.keys import Key
from desketch.wire import Wire

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def teacher():
    generator = torch.Generator().manual_seed(99)
    x = torch.randn(512, 16, generator=generator)
    return x, (x @ torch.randn(16, 4, generator=generator)).argmax(1)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).clone()


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


class Loop:
    """A rank's training: its own batches, drawn by its own generator, whose state can be saved."""

    def __init__(self, rank, *, model=None, optimizer="adamw", world=None, **options):
        self.model = model or net()
        self.optimizer = OPTIMIZERS[optimizer]([p for p in self.model.parameters() if p.requires_grad])
        self.generator = torch.Generator().manual_seed(1000 + rank)
        options = {"key": Key(5), "every": 2, **options}
        self.outer = SketchedOuter(self.model, self.optimizer, **options)

    def inner(self):
        x, y = teacher()
        i = torch.randint(len(x), (32,), generator=self.generator)
        loss_of(self.model, x[i], y[i]).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, steps):
        for _ in range(steps):
            self.inner()
            self.outer.step()
        return self

    def state(self):
        parts = {"model": self.model, "optimizer": self.optimizer, "outer": self.outer}
        states = {name: part.state_dict() for name, part in parts.items()}
        return pickle.loads(pickle.dumps({**states, "generator": self.generator.get_state()}))

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.outer.load_state_dict(state["outer"])
        self.generator.set_state(state["generator"])
        return self


def trained(rank, options):
    """theta after every round, the bytes, and the loss on all data before and after."""
    steps = options.pop("steps", 8)
    x, y = teacher()
    loop = Loop(rank, **options)
    before, thetas = float(loss_of(loop.model, x, y)), []
    for _ in range(steps):
        loop.inner()
        if loop.outer.step():
            thetas.append(loop.outer.theta.clone())
    predicted = loop.outer.method.round_bytes(dist.get_world_size())
    stats = loop.outer.stats
    loop.outer.finish()
    return {
        "thetas": thetas,
        "w": flat(loop.model),
        "stats": stats,
        "predicted": predicted,
        "before": before,
        "after": float(loss_of(loop.model, x, y)),
        "weights": loop.outer.weights,
    }


def expecting(rank, options):
    """The second round of an overlapped run: the rank's update, the theta and M it landed on, and where it went on."""
    loop = Loop(rank, overlap=True, **options).run(2)
    start = flat(loop.model)
    loop.inner()
    loop.outer.step()
    loop.inner()
    delta = flat(loop.model) - start
    loop.outer.step()
    seen = {"delta": delta, "theta": loop.outer.theta.clone(), "M": deepcopy(loop.outer.nesterov.M)}
    seen["went"] = flat(loop.model)
    loop.outer.finish()
    return seen


def one_round(rank, options):
    """A single round beside everyone's update, from which the mean can be computed by hand."""
    loop = Loop(rank, **options)
    theta = loop.outer.theta.clone()
    for _ in range(loop.outer.every - 1):
        loop.inner()
        loop.outer.step()
    loop.inner()
    delta = flat(loop.model) - theta
    moments = [
        float(loop.optimizer.state[p]["exp_avg_sq"].mean()) if "exp_avg_sq" in loop.optimizer.state[p] else 0.0
        for p in loop.model.parameters()
    ]
    loop.outer.step()
    return {
        "theta": theta,
        "delta": delta,
        "moments": moments,
        "sizes": loop.outer.flat.sizes,
        "after": loop.outer.theta.clone(),
        "w": flat(loop.model),
        "state": loop.outer.method.state_dict(),
    }


def resumed(rank, options):
    """Five steps, and five more by the same objects, or by new ones out of a pickle, in the middle of a round."""
    kept = Loop(rank, **options).run(5)
    state = kept.state()
    fresh = Loop(rank, model=net(seed=3), **options).load(state)
    kept.run(5)
    fresh.run(5)
    stats = kept.outer.stats, fresh.outer.stats
    kept.outer.finish()
    fresh.outer.finish()
    return {
        "kept": flat(kept.model),
        "fresh": flat(fresh.model),
        "theta": (kept.outer.theta, fresh.outer.theta),
        "stats": stats,
    }


def refused(rank, options):
    """Rank 2 differs in one argument; what the first step says."""
    said = {}
    for name, odd in options.items():
        chosen = odd if rank == 2 else {}
        try:
            Loop(rank, **chosen).run(1)
            said[name] = None
        except DesketchError as error:
            said[name] = str(error)
    return said


def frozen(rank, options):
    """A frozen layer stays; one that rank 2 alone freezes is refused; one unfrozen between rounds too."""
    model = net()
    model[0].weight.requires_grad_(False)
    loop = Loop(rank, model=model).run(4)
    same = torch.equal(model[0].weight, net()[0].weight)
    d = loop.outer.flat.d
    model[0].weight.requires_grad_(True)
    loop.inner()
    loop.outer.step()
    try:
        loop.outer.step()
        changed = None
    except DesketchError as error:
        changed = str(error)
    other = net()
    other[0].weight.requires_grad_(rank != 2)
    try:
        Loop(rank, model=other).run(1)
        differs = None
    except DesketchError as error:
        differs = str(error)
    return {"same": same, "d": d, "changed": changed, "differs": differs}


def started_apart(rank, options):
    """Different seeds: refused, and mended by synchronise; a theta tampered with is found in the next round."""
    loop = Loop(rank, model=net(seed=rank))
    try:
        loop.run(1)
        error = None
    except DesketchError as e:
        error = str(e)
    loop = Loop(rank, model=net(seed=rank))
    loop.outer.synchronise(source=1)
    start = flat(loop.model)
    loop.run(4)
    together = flat(loop.model)
    if rank == 2:
        loop.outer.theta[7] += 1e-6
    try:
        loop.run(2)
        tampered = None
    except DesketchError as e:
        tampered = str(e)
    return {"error": error, "start": start, "together": together, "tampered": tampered}


def joined(rank, options):
    """Rank 2 knows nothing of the four steps that ranks 0 and 1 have behind them; synchronise brings it in."""
    state = Loop(rank, **options).run(4).state()
    loop = Loop(rank, model=net(seed=8), **options)
    if rank != 2:
        loop.load(state)
    try:
        loop.run(1)
        error = None
    except DesketchError as e:
        error = str(e)
    loop.outer.synchronise(source=0)
    loop.run(4)
    return {"error": error, "w": flat(loop.model), "round": loop.outer.round, "M": loop.outer.nesterov.M}


def not_finite(rank, options):
    """Rank 1's update is NaN in the second round only; then everyone's."""
    loop = Loop(rank, **options).run(2)
    theta, M = loop.outer.theta.clone(), deepcopy(loop.outer.nesterov.M)
    loop.inner()
    loop.outer.step()
    loop.inner()
    delta = flat(loop.model) - theta
    if rank == 1:
        with torch.no_grad():
            loop.model[0].weight[3, 3] = float("nan")
        for state in loop.optimizer.state.values():
            state["exp_avg"].fill_(float("nan"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.outer.step()
        if loop.outer.overlap:
            loop.run(2)
    after, stats = loop.outer.theta.clone(), loop.outer.stats
    loop.run(4)
    finite, later = flat(loop.model), loop.outer.stats
    with torch.no_grad():
        loop.model[0].weight.fill_(float("inf"))
    loop.outer.step()
    error = None
    try:
        loop.outer.step()
        loop.outer.finish()
    except DesketchError as e:
        error = str(e)
    return {
        "theta": theta,
        "M": M,
        "delta": delta,
        "after": after,
        "stats": stats,
        "later": later,
        "warned": [str(w.message) for w in caught],
        "finite": finite,
        "error": error,
        "intact": loop.outer.theta.clone(),
    }


def sites(rank, options):
    """Two sites of two ranks: DDP inside, the outer step between their leads."""
    inside = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    between = dist.new_group([0, 2])
    model = net()
    parallel = DistributedDataParallel(model, process_group=inside)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = SketchedOuter(
        model, optimizer, every=2, compression=4, key=Key(2), group=between, site=inside, overlap=options["overlap"]
    )
    generator = torch.Generator().manual_seed(rank)
    x, y = teacher()
    apart, after = None, []
    for step in range(6):
        i = torch.randint(len(x), (32,), generator=generator)
        loss_of(parallel, x[i], y[i]).backward()
        optimizer.step()
        optimizer.zero_grad()
        apart = flat(model) if step == 0 else apart
        if outer.step():
            after.append(flat(model))
    outer.finish()
    return {"apart": apart, "after": after, "w": flat(model), "stats": outer.stats, "round": outer.round}


def dying(rank, options):
    """Rank 2 dies in the middle of the exchange of round 1; what the others are left with."""
    folder = Path(options["folder"])
    loop = Loop(rank, **options["loop"]).run(3)
    loop.inner()
    torch.save(loop.state(), folder / f"before{rank}.pt")
    if rank == 2:
        listen = rounds._listen

        def die(t, rows):
            os._exit(9)

        rounds._listen = die
        assert listen is not rounds._listen
    try:
        loop.outer.step()
        error = None
    except DesketchError as e:
        error = str(e)
    after = loop.state()
    return {"error": error, "after": after, "theta": loop.outer.theta.clone()}


def revived(rank, options):
    """All ranks again, from what was saved; beside a run nobody died in."""
    folder = Path(options["folder"])
    state = torch.load(folder / f"before{rank}.pt", weights_only=False)
    loop = Loop(rank, model=net(seed=4), **options["loop"]).load(state)
    loop.outer.step()
    loop.run(4)
    whole = Loop(rank, **options["loop"]).run(8)
    return {"revived": flat(loop.model), "whole": flat(whole.model)}


def alone(rank, options):
    """World size one: plain training, nothing sent."""
    loop = Loop(rank, **options).run(7)
    loop.outer.finish()
    plain = net()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1000 + rank)
    x, y = teacher()
    for _ in range(7):
        i = torch.randint(len(x), (32,), generator=generator)
        loss_of(plain, x[i], y[i]).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {"w": flat(loop.model), "plain": flat(plain), "stats": loop.outer.stats}


def automatic(rank, options):
    """method="auto" builds what it says."""
    said = []
    for budget in (options["thin"], options["budget"]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop = Loop(rank, every=None, method="auto", budget=budget, steps=4000).run(5)
        said.append([str(w.message) for w in caught])
    return {"choice": loop.outer.choice, "wire": loop.outer.wire, "every": loop.outer.every, "said": said}


SCENARIOS = {
    f.__name__: f
    for f in (
        trained,
        expecting,
        one_round,
        resumed,
        refused,
        frozen,
        started_apart,
        joined,
        not_finite,
        sites,
        dying,
        revived,
    )
} | {"alone": alone, "automatic": automatic}
WIRES = {"Dense": Dense, "Sparse": Sparse, "Wire": Wire}


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    scenarios = pickle.loads((folder / "scenarios.pkl").read_bytes())
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    seen = {}
    for name, (scenario, options) in scenarios.items():
        print(f"rank {rank}: {name}", flush=True)
        seen[name] = SCENARIOS[scenario](rank, dict(options))
    torch.save(seen, folder / f"rank{rank}.pt")
    if not any(scenario == "dying" for scenario, _ in scenarios.values()):
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
