"""Write tests/vectors/replica.json, short runs of a replica: ``python tests/vectors/make_replica.py``."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from desketch.fed import Replica, SketchChannel, make_optimizer
from desketch.keys import Key

PATH = Path(__file__).with_name("replica.json")
D, B, ROUNDS = 100, 20, 6
CASES = [
    ("sgd", 0.5, None, "srht", "sign1"),
    ("momentum", 0.25, None, "srht", "int8"),
    ("nesterov", 0.25, 0.7, "srht", "f16"),
    ("adam", 0.01, None, "countsketch", "int4"),
    ("amsgrad", 0.01, None, "srht", "f32"),
    ("sgd", "auto", None, "countsketch", "f32"),
    ("momentum", "auto", None, "srht", "sign1"),
    ("nesterov", "auto", None, "srht", "sign1"),
    ("adam", "auto", None, "srht", "sign1"),
    ("amsgrad", "auto", 0.9, "srht", "sign1"),
    ("momentum", "auto", None, "srht", "sign1", 0.8),
    ("momentum", "auto", None, "srht", "trellis2", 0.8),
]


def uniform(key: Key, n: int) -> torch.Tensor:
    """n numbers in [-1/2, 1/2), from a stream of the key."""
    words = torch.tensor([int(w) for w in key.words(n, stream=5)], dtype=torch.float64)
    return (words / 2**32 - 0.5).float()


def case(
    name: str, eta: float | str, beta: float | None, family: str, codec: str, client_momentum: float = 0.0
) -> dict[str, object]:
    key, tiny = Key(19).fold_in(name, family), int(client_momentum > 0)
    channel = SketchChannel(d=D, key=key, run=77, family=family, b=B, codec=codec, along=bool(tiny))
    w0 = uniform(key.fold_in("w0"), D)
    optimizer = make_optimizer(name, eta_global=eta, beta=beta, client_momentum=client_momentum)
    replica = Replica(w0, optimizer=optimizer, channel=channel)
    rounds = []
    for t in range(1, ROUNDS + 1):
        y = uniform(key.fold_in("y", t), B + tiny)
        y *= 8.0 / t  # the first ones are longer than the bound of the automatic step
        frame = None if t == 4 else channel.encode_broadcast(t, y)
        replica.apply(t, frame)
        rounds.append(
            {
                "broadcast": frame and frame.hex(),
                "w": replica.w.numpy().tobytes().hex(),
                "eta": float(replica.optimizer.eta).hex(),
                "digest": replica.digest(),
            }
        )
    settings = {"server_optimizer": name, "eta_global": eta, "beta": optimizer.beta}
    frames = {"run": 77, "key": key.bits.hex(), "family": family, "codec": codec, "d": D, "b": B, "tiny": tiny}
    return {**settings, **frames, "w0": w0.numpy().tobytes().hex(), "rounds": rounds}


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(case(*arguments)) for arguments in CASES)
    PATH.write_text(f"[\n{rows}\n]\n")
