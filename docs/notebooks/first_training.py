# %% [markdown]
# # First training
#
# Five clients, each of which has seen only two kinds of digits. Alone none of them can know the other eight; together they
# learn all ten, over messages of a few dozen bytes.

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import desketch as ds

ROUNDS = 60  # in a hurry: 2

# %%
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
test_x, test_y = x[1500:], y[1500:]
mine = [torch.isin(y[:1500], torch.tensor([c, c + 5])) for c in range(5)]  # client c has the digits c and c + 5
clients = [ds.Client(x[:1500][i], y[:1500][i]) for i in mine]
[int(i.sum()) for i in mine]


# %%
def new_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(model):
    return {"accuracy": float((model(test_x).argmax(1) == test_y).float().mean())}


# %% [markdown]
# ## Alone, sending nothing
#
# The row every comparison needs: what does a client reach by itself?

# %%
alone = ds.federate(
    new_model(), clients[:1], loss=nn.functional.cross_entropy, rounds=ROUNDS, evaluate=accuracy, progress=False
)
print(f"client 0 alone: {alone.history[-1]['accuracy']:.1%}")

# %% [markdown]
# ## Together
#
# `compression=30` and one bit a number are the defaults; `ds.Wire(compression=1, codec="f32")` sends everything.

# %%
wires = {
    "default: 30x fewer numbers, 1 bit each": ds.Wire(),
    "100x fewer numbers, 1 bit each": ds.Wire(compression=100),
    "all numbers, float32": ds.Wire(compression=1, codec="f32"),
}
runs = {}
for name, wire in wires.items():
    runs[name] = run = ds.federate(
        new_model(),
        clients,
        loss=nn.functional.cross_entropy,
        rounds=ROUNDS,
        evaluate=accuracy,
        wire=wire,
        progress=False,
    )
    print(f"{name:40} {run.history[-1]['accuracy']:6.1%} {run.bytes_per_client / 1e3:10,.1f} kB per client")

# %% [markdown]
# The same number of rounds is not the whole truth, so here is accuracy against bytes:

# %%
plt.figure(figsize=(6, 3.4))
for name, run in runs.items():
    sent = [(t + 1) * run.bytes_per_client / run.rounds for t in range(len(run.history))]
    plt.plot(sent, [100 * row["accuracy"] for row in run.history], label=name)
plt.axhline(100 * alone.history[-1]["accuracy"], color="grey", linestyle=":", label="client 0 alone, 0 bytes")
plt.xscale("log")
plt.xlabel("bytes sent and received per client")
plt.ylabel("accuracy, %")
plt.legend(fontsize=8)
plt.tight_layout()
plt.show()

# %% [markdown]
# What is in a run:

# %%
run = runs["default: 30x fewer numbers, 1 bit each"]
print(run)
print(run.history[-1])
