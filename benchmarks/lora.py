"""Fine-tuning over thin wires: a GPT pretrained on one text, LoRA-tuned by four workers on another.

    python benchmarks/lora.py --text tinyshakespeare/input.txt

Pretraining: Python sources of the standard library, one worker.  Tuning: adapters by peft on all linear layers, each
worker a contiguous quarter of the text.  Only the adapters travel; bytes are sent and received by a worker, by the rule
of ``language_model.py``, and a parameter is one of the adapters'.  Finished rows are kept and skipped.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).parent
RESULTS = ROOT / "results" / "lora.json"
sys.path.insert(0, str(ROOT))

from lm_batched import Outer  # noqa: E402
from lm_bed import STDLIB, batch, cosine, draws, evaluate, loss_of, make_model, make_optimizer, parse, shard, texts  # noqa: E402

ROWS = (
    "alone",
    "diloco:every=20,outer_lr=1.0,outer_momentum=0.7",
    *(f"diloco-int4:every={H},outer_lr=1.0,outer_momentum=0.7" for H in (20, 40)),
    *(f"diloco-int4:every={H},outer_lr=1.0,outer_momentum=0.5" for H in (200, 500)),
    *(
        f"sketch:compression={c},every={H},outer_lr=1.0,outer_momentum={m}"
        for c, H, m in ((10, 20, 0.7), (2.5, 60, 0.7), (2.5, 20, 0.7), (1, 50, 0.7), (2.5, 4, 0.8))
    ),
)


class Fleet:
    """Workers with adapters of their own on one frozen model."""

    def __init__(self, base: Any, job: dict[str, Any]) -> None:
        from peft import LoraConfig, get_peft_model

        from desketch.core.flat import FlatParameters

        torch.manual_seed(job["seed"])
        config = LoraConfig(
            r=job["rank"], lora_alpha=2 * job["rank"], target_modules=["qkv", "project", "mlp.0", "mlp.2"]
        )
        first = get_peft_model(copy.deepcopy(base), config)
        self.models = [copy.deepcopy(first) for _ in range(job["world"])]
        self.flats = [FlatParameters(model) for model in self.models]
        self.flat = self.flats[0]
        self.parameters = [[p for p in model.parameters() if p.requires_grad] for model in self.models]
        self.optimizers = [make_optimizer(p, job, lr=job["lr"], fused=True) for p in self.parameters]
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(o, cosine(job)) for o in self.optimizers]

    def inner(self, rank: int, rows: Tensor) -> None:
        """One inner step of a worker."""
        loss_of(self.models[rank], rows).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters[rank], 1.0)
        self.optimizers[rank].step()
        self.optimizers[rank].zero_grad()
        self.schedules[rank].step()

    def vector(self, rank: int) -> Tensor:
        """A worker's adapters as one vector."""
        return self.flats[rank].flatten()

    def load(self, w: Tensor) -> None:
        """Every worker goes on from w."""
        for flat in self.flats:
            flat.load(w)

    def moments(self, rank: int) -> list[float]:
        """The mean second moment of every tensor of a worker."""
        from desketch.fed.moments import second_moments

        return second_moments(self.optimizers[rank], self.parameters[rank])


def pretrained(job: dict[str, Any], symbols: int, cut: Any) -> Any:
    """The model after its first text."""
    model, data, draw = make_model(job, symbols), torch.from_numpy(cut["train"]), draws(job, 99)
    first = {**job, "steps": job["pretraining"], "batch": 16}
    optimizer = make_optimizer(model.parameters(), first, lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine(first))
    for _ in range(first["steps"]):
        loss_of(model, batch(data, first, draw)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model


def tune(base: Any, target: Any, job: dict[str, Any]) -> dict[str, Any]:
    """One row: tune, and report losses on the second text and bytes."""
    name, settings = parse(job["row"])
    fleet, started = Fleet(base, job), time.process_time()
    outer = None if name == "alone" else Outer(fleet, job, name, settings)  # type: ignore[arg-type]
    shards = [shard([target], rank, job["world"], "iid") for rank in range(job["world"])]
    generators = [draws(job, rank) for rank in range(job["world"])]
    for step in range(1, job["steps"] + 1):
        for rank in range(job["world"]):
            fleet.inner(rank, batch(shards[rank], job, generators[rank]))
        if outer and (step % outer.every == 0 or step == job["steps"]):
            outer.step()
    seen = fleet.models if outer is None else fleet.models[:1]
    sent = outer.bytes if outer else 0.0
    losses = {
        part: round(sum(evaluate(model, [target], part, job)[0] for model in seen) / len(seen), 4)
        for part in ("validation", "test")
    }
    size = {"bytes": round(sent), "bytes_per_parameter": round(sent / fleet.flat.d, 3), "d": fleet.flat.d}
    return {
        "row": job["row"],
        "seed": job["seed"],
        **losses,
        **size,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    """Every row that has no result yet."""
    from desketch.core.files import write_durably

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="the second text, a UTF-8 file")
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shape = {"context": 64, "layers": 2, "width": 64, "batch": 4, "world": 4, "windows": 512, "warmup": 0.05}
    tuning = {"pretraining": 2000, "steps": 1000, "lr": 3e-3, "rank": 8}
    symbols, (first, target) = texts([STDLIB, args.text])
    document = (
        json.loads(args.out.read_text())
        if args.out.exists()
        else {"command": "python benchmarks/lora.py --text FILE", "settings": {**shape, **tuning}, "rows": []}
    )
    for seed in args.seeds:
        base = None
        for row in args.rows:
            if any(done["row"] == row and done["seed"] == seed for done in document["rows"]):
                continue
            job = {"row": row, "seed": seed, **shape, **tuning}
            if base is None:
                base = pretrained(job, symbols, first)
                document.setdefault("untuned", {})[str(seed)] = round(evaluate(base, [target], "test", job)[0], 4)
            document["rows"].append(tune(base, target, job))
            write_durably(args.out, json.dumps(document, indent=1) + "\n")
            print(document["rows"][-1], flush=True)


if __name__ == "__main__":
    main()
