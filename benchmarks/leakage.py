"""How much sketches leak: every mark of docs/leakage.md, over at least ten targets each.

python benchmarks/leakage.py [--only PART ...] [--fashion FOLDER]      writes benchmarks/results/leakage.json

Seconds are CPU seconds of one thread, label scan included.  ``--fashion`` names the folder with the Fashion-MNIST files
in IDX format, for the 28x28 part.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from desketch.attack.audit import attack_target, wilson
from desketch.attack.bounds import bayesian_at, box_probability, cramer_rao
from desketch.attack.noise import ObservedNoise
from desketch.attack.objective import Objective, Observation
from desketch.attack.optimise import build_solver, reconstruct
from desketch.attack.quality import psnr
from desketch.attack.scenario import Data, Scenario
from desketch.keys import Key
from desketch.sketches import draw
from desketch.tasks import Task, build_model, load_task
from known_attacks import KNOWN

RESULT = Path(__file__).parent / "results" / "leakage.json"
SEEDS = 10
MODELS = {"mlp-tanh": "mlp-tanh:32", "lenet": "lenet"}
FAMILIES = ("countsketch", "srht", "gaussian")
SUCCESS = 1e-4
Row = dict[str, Any]


def data_of(task: Task) -> Data:
    """Targets from the test set, prior from the training set."""
    return Data(task.x_test.double(), task.y_test, task.x_train.double(), task.y_train, task.classes)


def scenario(task: Task, model: str, **options: Any) -> Scenario:
    """Untrained weights of seed s for target s."""
    spec = MODELS[model]
    return Scenario(data=data_of(task), build=lambda seed: build_model(spec, task, seed=seed), **options)


def size(task: Task, model: str) -> int:
    """The d of a model."""
    return sum(p.numel() for p in build_model(MODELS[model], task).parameters())


def measure(s: Scenario, solvers: tuple[str, ...] = ("lm", "box"), *, seeds: int = SEEDS, restarts: int = 3) -> Row:
    """Success rate, PSNR and CPU seconds over the targets."""
    prior, errors, seconds, right, used = s.prior(), [], [], 0, []
    classes = None if s.labels_known else s.data.classes
    for seed in range(seeds):
        target, began = s.target(seed), time.process_time()
        attempt = attack_target(target, prior, solvers, classes=classes, restarts=restarts, seed=seed)
        seconds.append(time.process_time() - began)
        errors.append(attempt.quality.mse)
        right += attempt.labels_right
        used.append(attempt.solver)
    wins = sum(error < SUCCESS for error in errors)
    return {
        "b": s.b,
        "seeds": seeds,
        "success": wins,
        "rate": wins / seeds,
        "wilson": wilson(wins, seeds),
        "psnr_median": median(map(psnr, errors)),
        "labels_right": right,
        "seconds_median": median(seconds),
        "seconds_max": max(seconds),
        "solvers": sorted(set(used)),
    }


def recovery(digits: Task) -> list[Row]:
    """Mark: >= 95 % at b = 1.1 m, label unknown."""
    cells = [(model, family) for model in MODELS for family in FAMILIES]
    return [
        {"model": model, "family": family, "ratio": 1.1}
        | measure(scenario(digits, model, family=family, b=-(-11 * 64 // 10)), ("lm",))
        for model, family in cells
    ]


def threshold(digits: Task) -> list[Row]:
    """Mark: measured thresholds within 10 % of the predicted: b = m by rank, (m + k)/2 inside the box."""
    rows = []
    for model in MODELS:
        rate = {}
        for b in (56, 60, 62, 63, 64, 65, 68):
            rate[b] = measure(scenario(digits, model, family="srht", b=b, labels_known=True), ("lm",), restarts=1)[
                "rate"
            ]
        rows.append(_crossing(rate, 64.0) | {"model": model, "attack": "lm", "predicted_by": "rank"})
    base = scenario(digits, "mlp-tanh", family="srht", labels_known=True)
    inside = [int(((t := base.target(seed).truth) > 0).logical_and(t < 1).sum()) for seed in range(SEEDS)]
    sizes = (36, 40, 42, 44, 46, 48, 50, 54)
    rate = {b: measure(replace(base, b=b), ("box",), restarts=1)["rate"] for b in sizes}
    predicted = {b: mean(box_probability(64, b, k) for k in inside) for b in range(30, 64)}
    middle = _crossing(predicted, 0.0)["measured"]
    rows.append(_crossing(rate, middle) | {"model": "mlp-tanh", "attack": "box", "predicted_by": "(m + k)/2"})
    return rows


def _crossing(rate: dict[int, float], predicted: float) -> Row:
    """The b at which the success rate passes one half, by interpolation, beside the prediction."""
    sizes = sorted(rate)
    upper = next(b for b in sizes if rate[b] >= 0.5)
    lower = max((b for b in sizes if b < upper), default=upper)
    gap = rate[upper] - rate[lower]
    measured = lower + (upper - lower) * ((0.5 - rate[lower]) / gap if gap else 0.0)
    off = abs(measured / predicted - 1) if predicted else 0.0
    return {"rates": rate, "measured": measured, "predicted": predicted, "off_by": off}


def noise(digits: Task) -> list[Row]:
    """Mark: attack within 3 dB of the Bayesian bound."""
    rows = []
    for compression in (8, 32):
        for z in (0.002, 0.02, 0.2):
            found, clamped, bounds, limits = [], [], [], []
            for seed in range(2 * SEEDS):
                base = scenario(digits, "mlp-tanh", b=round(size(digits, "mlp-tanh") / compression), labels_known=True)
                norm = base.target(seed).gradient_norm
                target = replace(base, noise=ObservedNoise(before=z * norm)).target(seed)
                prior = base.prior()
                x = reconstruct(target.objective, build_solver("prior", prior), prior, restarts=1).x
                found.append(float((x - target.truth).square().mean()))
                clamped.append(float((x.clamp(0, 1) - target.truth).square().mean()))
                bounds.append(bayesian_at(target.objective, target.truth, prior))
                limits.append(cramer_rao(target.objective, target.truth))
            row = {
                "compression": compression,
                "relative_noise": z,
                "seeds": 2 * SEEDS,
                "psnr_attack": psnr(mean(found)),
            }
            row |= {"psnr_clamped": psnr(mean(clamped)), "psnr_bound": psnr(mean(bounds))}
            rows.append(row | {"psnr_cramer_rao": psnr(mean(limits)), "gap_db": row["psnr_bound"] - row["psnr_attack"]})
    return rows


def large(fashion: Task) -> Row:
    """Mark: 28x28 at d/b = 16 in at most 30 s."""
    d = size(fashion, "lenet")
    few = replace(fashion, x_train=fashion.x_train[:5000], y_train=fashion.y_train[:5000])
    return {"d": d, "compression": 16} | measure(scenario(few, "lenet", b=round(d / 16), family="srht"), ("lm",))


def mixtures(digits: Task) -> list[Row]:
    """Marks: K = 5, B = 4, several clients, stacked rounds with b far below m."""
    d = size(digits, "mlp-tanh")
    cases: dict[str, dict[str, Any]] = {
        "K = 5": {"b": d // 32, "K": 5, "eta_local": 0.1},
        "K = 10": {"b": d // 32, "K": 10, "eta_local": 0.1},
        "B = 2": {"b": d // 8, "batch": 2},
        "B = 2, labels known": {"b": d // 8, "batch": 2, "labels_known": True},
        "B = 4": {"b": d // 4, "batch": 4},
        "B = 4, labels known": {"b": d // 4, "batch": 4, "labels_known": True},
        "average of 2 clients": {"b": d // 8, "clients": 2},
        "average of 4 clients": {"b": d // 4, "clients": 4},
        "18 rounds of b = 4": {"b": 4, "rounds": 18},
        "9 rounds of b = 8": {"b": 8, "rounds": 9},
    }
    return [
        {"case": name} | measure(scenario(digits, "mlp-tanh", **options), ("lm",)) for name, options in cases.items()
    ]


def trained(digits: Task) -> list[Row]:
    """Mark: >= 70 % on a trained network at d/b = 32."""

    def build(seed: int) -> nn.Module:
        model = build_model(MODELS["mlp-tanh"], digits, seed=seed)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        for _ in range(200):
            optimiser.zero_grad()
            cross_entropy(model(digits.x_train), digits.y_train).backward()
            optimiser.step()
        return model

    b = size(digits, "mlp-tanh") // 32
    accuracy = float((build(0)(digits.x_test).argmax(1) == digits.y_test).float().mean())
    base = Scenario(data=data_of(digits), build=build, b=b)
    return [{"attack": name, "accuracy": accuracy} | measure(base, (name,)) for name in ("lm", "prior", "box")]


def side_by_side(digits: Task) -> list[Row]:
    """Mark: no slower and no less successful than DLG and inverting gradients on the same targets."""
    rows = []
    for model in MODELS:
        d = size(digits, model)
        for compression in (1, 32):
            b = None if compression == 1 else d // compression
            ours = measure(scenario(digits, model, b=b, family="countsketch"), ("lm",))
            rows.append({"model": model, "attack": "ours", "compression": compression, "label": "scanned"} | ours)
        for name, attack in KNOWN.items():
            errors, seconds = [], []
            for seed in range(SEEDS):
                target = scenario(digits, model, b=None, codec=None).target(seed)
                o, began = target.objective.observations[0], time.process_time()
                x = attack(target.objective.update, o.w, o.s, target.objective.y, seed)
                seconds.append(time.process_time() - began)
                error = float((x - target.truth).square().mean())
                errors.append(error if error == error else 1.0)
            wins = sum(e < SUCCESS for e in errors)
            row = {"model": model, "attack": name, "compression": 1, "success": wins, "seeds": SEEDS}
            row |= {"rate": wins / SEEDS, "psnr_median": median(map(psnr, errors)), "seconds_max": max(seconds)}
            label = "optimised" if name == "DLG" else "given"
            rows.append(row | {"seconds_median": median(seconds), "label": label})
    return rows


def codecs(digits: Task) -> list[Row]:
    """What the codec of the wire takes away, on the LeNet at d/b = 64."""
    b = size(digits, "lenet") // 64
    names = ("f32", "f16", "int8", "int4", "sign1")
    rows = []
    for name in names:
        s = scenario(digits, "lenet", b=b, codec=name)
        prior = s.prior()
        bounds = [bayesian_at((t := s.target(seed)).objective, t.truth, prior) for seed in range(SEEDS)]
        rows.append({"codec": name, "psnr_bound": psnr(mean(bounds))} | measure(s, ("lm", "box", "prior"), restarts=1))
    return rows


def traps(digits: Task) -> list[Row]:
    """Two ways to fool oneself: de-sketch first, and a low loss below the threshold; and a wrong key."""
    base = scenario(digits, "mlp-tanh", b=75, codec=None, labels_known=True)
    prior, rows = base.prior(), []

    def case(name: str, change: Callable[[Observation], Observation], b: int = 75) -> None:
        errors, losses = [], []
        for seed in range(SEEDS):
            target = replace(base, b=b).target(seed)
            o = change(target.objective.observations[0])
            objective = Objective(target.objective.update, [o], target.objective.y)
            found = reconstruct(objective, build_solver("lm", prior), prior, restarts=1, iterations=60)
            errors.append(float((found.x.clamp(0, 1) - target.truth).square().mean()))
            losses.append(found.loss)
        rows.append({"case": name, "psnr_median": psnr(median(errors)), "loss_median": median(losses), "seeds": SEEDS})

    def other_key(o: Observation) -> Observation:
        return Observation(o.w, draw("srht", d=o.w.numel(), b=o.s.numel(), key=Key(999)), o.s)

    case("sketch domain, b = 75 > m", lambda o: o)
    case("de-sketched first, same message", lambda o: Observation(o.w, None, o.desketch(o.s)))
    case("sketch domain, b = 56 < m", lambda o: o, 56)
    case("wrong key, b = 75", other_key)
    return rows


PARTS: dict[str, Callable[[Task], Any]] = {
    "recovery": recovery,
    "threshold": threshold,
    "noise": noise,
    "mixtures": mixtures,
    "trained": trained,
    "side_by_side": side_by_side,
    "codecs": codecs,
    "traps": traps,
    "large": large,
}


def main() -> None:
    """Measure the parts asked for, and write each into the result as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--fashion", type=Path, help="folder of Fashion-MNIST in IDX format")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_task("digits")
    for name in arguments.only:
        if name == "large" and arguments.fashion is None:
            print("large: skipped, give --fashion FOLDER")
            continue
        task = load_task(f"idx:{arguments.fashion}") if name == "large" else digits
        began = time.process_time()
        rows = PARTS[name](task)
        result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        result |= {"command": "python benchmarks/leakage.py", "machine": f"{platform.machine()}, 1 thread"}
        result |= {"torch": torch.__version__, name: rows}
        draft = RESULT.with_suffix(".partial")
        draft.write_text(json.dumps(result, indent=1) + "\n")
        os.replace(draft, RESULT)
        print(f"{name}: {time.process_time() - began:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
