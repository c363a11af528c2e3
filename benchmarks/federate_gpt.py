"""`federate` on a character GPT with AdamW clients: with weights a tensor and without, by both server steps, and alone.

    python benchmarks/federate_gpt.py --text tinyshakespeare/input.txt

Four clients, a contiguous quarter of the text each, 2 layers x 64, K = 20 steps of AdamW at 3e-3 a round, moments kept,
batch 4 x 64; three seeds of weights, batches and sketches.  Validation loss of the last weights in nats; bytes are
messages up and down, a client and parameter.  "fixed-1.42:2.5" is a server step of 1.42 at 2.5x.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import desketch as ds
from desketch.core.files import write_durably
from desketch.fed.open_step import BETA, open_step
from lm_bed import evaluate, make_model, shard, texts

RESULTS = Path(__file__).parent / "results" / "federate_gpt.json"
JOB = {"context": 64, "layers": 2, "width": 64, "batch": 4, "windows": 256}
K, CLIENTS, ROUNDS = 20, 4, 40
ROWS = ("learned", "open", "learned-plain", "open-plain")  # plain: every tensor has the weight 1


def loss(scores: Tensor, y: Tensor) -> Tensor:
    """Of every symbol of the windows."""
    return cross_entropy(scores.flatten(0, 1), y.flatten())


def adamw(parameters: Any) -> torch.optim.AdamW:
    """The clients' optimiser."""
    return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)


def measure(name: str, compression: float, text: str, seed: int) -> dict[str, Any]:
    """One run; "alone" has the first client only, over a wire that loses nothing."""
    torch.set_num_threads(1)
    symbols, cut = texts([text])
    windows = [shard(cut, r, CLIENTS, "iid").unfold(0, JOB["context"] + 1, 16) for r in range(CLIENTS)]
    clients = [ds.Client(w[:, :-1].contiguous(), w[:, 1:].contiguous(), keep_optimizer=True) for w in windows]
    started, model = time.process_time(), make_model(JOB | {"seed": seed}, symbols)
    given: dict[str, Any] = {
        "loss": loss,
        "local_steps": K,
        "batch_size": JOB["batch"],
        "optimizer": adamw,
        "average": 1,
        "tensor_weights": "none" if name.endswith("plain") else "auto",
    }
    wire, chosen = ds.Wire(compression=compression), {}
    if name.startswith("open"):
        step = open_step(wire, d=sum(p.numel() for p in model.parameters()), clients=CLIENTS)
        chosen = {"server_optimizer": step.server_optimizer, "eta_global": step.eta_global, "momentum": step.beta}
    if name.startswith("fixed-"):
        chosen = {"server_optimizer": "nesterov", "eta_global": float(name.removeprefix("fixed-")), "momentum": BETA}
    if name == "alone":
        clients, wire = clients[:1], ds.Wire(compression=1, codec="f32")
        chosen = {"server_optimizer": "sgd", "eta_global": 1.0}
    run = ds.federate(model, clients, rounds=ROUNDS, wire=wire, seed=seed, **given, **chosen, progress=False)
    d = sum(p.numel() for p in model.parameters())
    return {
        "step": name,
        "seed": seed,
        "compression": compression if name != "alone" else None,
        "rounds": ROUNDS,
        "validation": round(evaluate(run.model, cut, "validation", JOB)[0], 4),
        "bytes_per_parameter": round(run.bytes_per_client / d, 3) if name != "alone" else 0.0,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    """Every row, or those asked for; rows that are there are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rows", nargs="*", default=["alone:1", *(f"{name}:{c}" for c in (2.5, 10) for name in ROWS)])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    for row, seed in product(args.rows, args.seeds):
        name, _, compression = row.partition(":")
        new = measure(name, float(compression), args.text, seed)
        document = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
        place = ("step", "compression", "seed")
        document["rows"] = [old for old in document["rows"] if any(old[p] != new[p] for p in place)] + [new]
        document["command"] = "python benchmarks/federate_gpt.py --text FILE"
        write_durably(args.out, json.dumps(document, indent=1) + "\n")
        print(new, flush=True)


if __name__ == "__main__":
    main()
