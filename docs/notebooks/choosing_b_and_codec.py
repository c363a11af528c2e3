# %% [markdown]
# # Choosing b and the codec
#
# Two knobs set the size of a message: b, how many numbers, and the codec, how many bits each. How far can they be turned?

# %%
import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import desketch as ds

DRAWS = 200  # in a hurry: 5
ROUNDS = 60  # in a hurry: 2
SEEDS = 3  # in a hurry: 1

# %% [markdown]
# ## The price of b is known exactly
#
# For an unbiased sketch E|RᵀRg|² = (1 + alpha)|g|², and `R.alpha` is that alpha in closed form. Measured beside it:

# %%
d = 4096
g = np.random.default_rng(0).standard_normal(d)
key = ds.Key(2023)
for compression in (2, 8, 32, 128):
    drawn = [ds.draw("srht", d=d, b=d // compression, key=key.fold_in("draw", i)) for i in range(DRAWS)]
    energy = np.mean([np.sum(R.desketch(R.sketch(g)) ** 2) for R in drawn]) / np.sum(g**2)
    print(f"d/b = {compression:4}:  1 + alpha = {1 + drawn[0].alpha:7.2f}   measured {energy:7.2f}")

# %% [markdown]
# The noise grows like d/b, and training pays for noise with rounds. So there is a best b: below it, more rounds eat what smaller
# messages save.
#
# ## Measure it on the model
#
# The accuracy after a fixed number of rounds, over seeds, for some settings:

# %%
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
clients = [ds.Client(x[c:1500:10], y[c:1500:10]) for c in range(10)]


def accuracy(model):
    return {"accuracy": float((model(x[1500:]).argmax(1) == y[1500:]).float().mean())}


def train(wire, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    loss = nn.functional.cross_entropy
    run = ds.federate(model, clients, loss=loss, rounds=ROUNDS, evaluate=accuracy, wire=wire, seed=seed, progress=False)
    return run.history[-1]["accuracy"], run.bytes_per_client


rows = []
for codec in ("f32", "int8", "sign1"):
    for compression in (10, 30, 100, 300):
        got = [train(ds.Wire(compression=compression, codec=codec), seed) for seed in range(SEEDS)]
        score, sent = np.mean([a for a, _ in got]), got[0][1]
        rows.append((codec, compression, sent, score))
        print(f"{codec:6} d/b = {compression:4} {sent / 1e3:9.1f} kB per client   accuracy {score:.1%}")

# %%
plt.figure(figsize=(6, 3.4))
for codec, mark in (("f32", "o"), ("int8", "s"), ("sign1", "^")):
    curve = [(sent, 100 * score) for name, _, sent, score in rows if name == codec]
    plt.plot(*zip(*curve, strict=True), marker=mark, label=codec)
plt.xscale("log")
plt.xlabel("bytes sent and received per client")
plt.ylabel(f"accuracy after {ROUNDS} rounds, %")
plt.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# Read it from the left: the fewest bytes for an accuracy are with one bit a number and a larger b, not with more bits and a smaller b.
# Rounding to one bit adds noise of about half the message's energy; leaving out 29 of 30 numbers adds 29 times it. That is why one
# bit is the default.
#
# Two limits. Below 17 numbers the one-bit code is biased (desketch warns). And a message has some eight bytes beside its numbers, so a tiny
# b stops saving: `desketch plan` counts it.
