"""What it takes to train a model of one's own: lines of code, and seconds from a fresh process to the first round.

    python benchmarks/user_programs.py            all rows, each in a fresh process, and a Flower app of the same kind
    python benchmarks/user_programs.py --row NAME one row, in this process

A row's lines are those of its function below the mark ``# federate``: model and data are the user's in any system.
Flower's are the code lines of ``client_app.py``, ``server_app.py`` and ``pyproject.toml`` of the quickstart-shaped app
in ``tests/integrations/flower/quickstart``; its model, data and training functions are not counted either.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset

import desketch as ds

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "user_programs.json"
APP = ROOT / "tests" / "integrations" / "flower" / "quickstart"
MARK = "    # federate\n"


def mlp(inputs: int = 64, outputs: int = 10) -> nn.Module:
    """A perceptron of 128 hidden units."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, outputs))


def vectors(n: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Examples of ten classes, by client."""
    return [(torch.randn(200, 64), torch.randint(10, (200,))) for _ in range(n)]


class Tokens(Dataset[dict[str, Tensor]]):
    """Sequences as the dicts that Hugging Face models take; ``labels`` are classes, or the tokens themselves."""

    def __init__(self, *, classes: bool) -> None:
        self.ids, self.classes = torch.randint(64, (100, 16)), classes

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[i], "labels": self.ids[i, 0] % 2 if self.classes else self.ids[i]}


def tensors() -> ds.Run:
    """My model, my tensors."""
    model, parts = mlp(), vectors()
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    return ds.federate(model, clients, loss=cross_entropy, rounds=1)


def dataset() -> ds.Run:
    """A Dataset."""
    model, parts = mlp(), [TensorDataset(x, y) for x, y in vectors()]
    # federate
    clients = [ds.Client(part) for part in parts]
    return ds.federate(model, clients, loss=cross_entropy, rounds=1)


def dict_batches() -> ds.Run:
    """A DataLoader of dicts, an optimiser of my own."""
    model, parts = mlp(), [[{"x": x, "y": y} for x, y in TensorDataset(*part)] for part in vectors()]
    loaders = [DataLoader(part, batch_size=32) for part in parts]
    # federate
    return ds.federate(
        model,
        [ds.Client(loader) for loader in loaders],
        loss=lambda model, batch: cross_entropy(model(batch["x"]), batch["y"]),
        optimizer=lambda params: torch.optim.AdamW(params, lr=1e-3),
        rounds=1,
    )


def bert() -> ds.Run:
    """Hugging Face BERT (random weights)."""
    from transformers import BertConfig, BertForSequenceClassification

    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=16, **size))
    loaders = [DataLoader(Tokens(classes=True), batch_size=16, shuffle=True) for _ in range(4)]
    # federate
    return ds.federate(
        model,
        [ds.Client(loader) for loader in loaders],
        loss=lambda model, batch: model(**batch).loss,
        optimizer=lambda params: torch.optim.AdamW(params, lr=1e-3),
        rounds=1,
    )


def gpt2_lora() -> ds.Run:
    """Hugging Face GPT-2 with LoRA by peft (random weights)."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    base = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    loaders = [DataLoader(Tokens(classes=False), batch_size=16, shuffle=True) for _ in range(4)]
    # federate
    return ds.federate(
        model,
        [ds.Client(loader) for loader in loaders],
        loss=lambda model, batch: model(**batch).loss,
        optimizer=lambda params: torch.optim.AdamW(params, lr=1e-3),
        rounds=1,
    )


def regression() -> ds.Run:
    """Regression."""
    model, parts = mlp(outputs=1), [(x, x.sum(1, keepdim=True)) for x, _ in vectors()]
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    return ds.federate(model, clients, loss=mse_loss, eta_local=0.01, rounds=1)


def multi_label() -> ds.Run:
    """Binary cross-entropy, several labels."""
    model, parts = mlp(outputs=3), [(x, (x[:, :3] > 0).float()) for x, _ in vectors()]
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    return ds.federate(model, clients, loss=binary_cross_entropy_with_logits, rounds=1)


def residual() -> ds.Run:
    """A residual net with GroupNorm."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.body(x)

    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), Block(), Block(), nn.Flatten(), nn.Linear(8 * 64, 10))
    parts = [(x.reshape(-1, 1, 8, 8), y) for x, y in vectors()]
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    return ds.federate(model, clients, loss=cross_entropy, rounds=1)


def batch_norm() -> ds.Run:
    """BatchNorm, its statistics kept by each client."""
    model, parts = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)), vectors()
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    return ds.federate(model, clients, loss=cross_entropy, statistics="local", rounds=1)


def own_loop() -> ds.Run:
    """A training loop of my own."""
    model, parts = mlp(), vectors()

    def train(model: nn.Module, x: Tensor, y: Tensor) -> int:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x), y))
            optimizer.step()
        return len(y)

    # federate
    clients = [ds.Client(train=lambda model, x=x, y=y: train(model, x, y)) for x, y in parts]
    return ds.federate(model, clients, rounds=1)


def private() -> ds.Run:
    """Differential privacy of single examples."""
    model, parts = mlp(), vectors()
    # federate
    clients = [ds.Client(x, y) for x, y in parts]
    privacy = ds.PerStep(clip=1.0, epsilon=4.0, delta=1e-5)
    return ds.federate(model, clients, loss=cross_entropy, privacy=privacy, rounds=1)


ROWS: dict[str, Callable[[], ds.Run]] = {
    row.__name__: row
    for row in (
        tensors,
        dataset,
        dict_batches,
        bert,
        gpt2_lora,
        regression,
        multi_label,
        residual,
        batch_norm,
        own_loop,
        private,
    )
}


def lines(row: Callable[[], ds.Run]) -> int:
    """Code lines of a row below its mark."""
    return _code_lines(inspect.getsource(row).split(MARK)[1])


def _code_lines(text: str) -> int:
    text = re.sub(r'"""(?:.|\n)*?"""', "", text)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def measure(name: str, repeats: int) -> dict[str, Any]:
    """The row in fresh processes: the fastest wall seconds and CPU seconds to the end of round 1, imports included."""
    walls, cpus = [], []
    for _ in range(repeats):
        started, before = time.perf_counter(), _children()
        command = [sys.executable, str(Path(__file__)), "--row", name]
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
        walls.append(time.perf_counter() - started)
        cpus.append(_children() - before)
    row = ROWS[name]
    return {"row": name, "what": row.__doc__, "lines": lines(row), "seconds": min(walls), "cpu_seconds": min(cpus)}


def measure_flower() -> dict[str, Any]:
    """One round of the plain app in Flower's own simulation, from ``flwr run`` to its result; the SuperLink is up."""
    from desketch.integrations.flower.deploy import wait_for_superlink
    from desketch.integrations.flower.processes import Deployment, flower_environment, tool
    from desketch.integrations.flower.project import write_flower_home

    with tempfile.TemporaryDirectory() as place, Deployment(Path(place) / "bed") as deployment:
        shutil.copytree(APP, Path(place) / "app")
        write_flower_home(deployment.home, f"{deployment.address}:{deployment.port}")
        deployment.start_superlink("--insecure", "--simulation")
        wait_for_superlink(deployment)
        result = Path(place) / "result.json"
        command = [tool("flwr"), "run", str(Path(place) / "app"), "desketch", "--stream"]
        command += ["--federation-config", "num-supernodes=4"]
        command += ["--run-config", f'results="{result}" num-server-rounds=1']
        started = time.perf_counter()
        subprocess.run(command, check=True, env=flower_environment(deployment.home), capture_output=True, timeout=900)
        while not result.exists():
            time.sleep(0.1)
        seconds = time.perf_counter() - started
    files = ("quickstart/client_app.py", "quickstart/server_app.py", "pyproject.toml")
    return {"lines": sum(_code_lines((APP / name).read_text()) for name in files), "seconds": seconds}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure all rows, or run one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=ROWS)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.row:
        print(ROWS[given.row]())
        return
    rows = []
    for name in ROWS:
        rows.append(measure(name, given.repeats))
        print(rows[-1])
    document = {"command": "python benchmarks/user_programs.py", "rows": rows, "flower": measure_flower()}
    print(document["flower"])
    RESULT.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
