# %% [markdown]
# # A transformer over a thin wire
#
# Four sites, each with its own chapter of a text, train one small GPT. What travels: everything in float32, a sketch of it, or nothing.
# The text is Python's own manual, which comes with Python.

# %%
from pydoc_data.topics import topics

import torch
from matplotlib import pyplot as plt
from torch import nn

import desketch as ds
from desketch.tasks.gpt import Gpt

torch.set_num_threads(1)
ROUNDS = 30  # in a hurry: 1
STEPS = 20  # in a hurry: 2
CONTEXT, SITES = 48, 4

# %%
text = "\n".join(topics.values())
symbols = sorted(set(text))
codes = torch.tensor([symbols.index(c) for c in text[:200_000]])
windows = codes[: len(codes) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
held_out, windows = windows[-200:], windows[:-200]
sites = windows.chunk(SITES)  # different chapters: the sites do not hold the same kind of text
print(f"{len(symbols)} symbols; windows per site: {[len(s) for s in sites]}")


# %%
def new_model():
    torch.manual_seed(0)
    return Gpt(symbols=len(symbols), context=CONTEXT, layers=2, width=64)


def loss(output, y):
    return nn.functional.cross_entropy(output.flatten(0, 1), y.flatten())


@torch.no_grad()
def held_out_loss(model):
    return {"loss": float(loss(model(held_out[:, :-1]), held_out[:, 1:]))}


def train(clients, wire):
    return ds.federate(
        new_model(),
        [ds.Client(s[:, :-1], s[:, 1:], keep_optimizer=True) for s in clients],
        loss=loss,
        rounds=ROUNDS,
        local_steps=STEPS,
        batch_size=16,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-3),
        evaluate=held_out_loss,
        evaluate_every=2,
        wire=wire,
        server_optimizer="sgd",
        eta_global=1.0,
        average=1,
        progress=False,
    )


d = sum(p.numel() for p in new_model().parameters())
print(f"d = {d:,} parameters, {4 * d / 1e3:,.0f} kB in float32")

# %%
everything = ds.Wire(compression=1, codec="f32")
settings = {
    "alone, nothing sent": (sites[:1], everything),
    "everything, float32": (sites, everything),
    "3x fewer numbers, 1 bit": (sites, ds.Wire(compression=3)),
    "10x fewer numbers, 1 bit": (sites, ds.Wire(compression=10)),
}
runs = {name: train(*setting) for name, setting in settings.items()}
for name, run in runs.items():
    sent = 0 if len(run.clients) == 1 else run.bytes_per_client
    last = [row["loss"] for row in run.history if "loss" in row][-1]
    print(f"{name:26} held-out loss {last:.3f}   {sent / 1e3:10,.0f} kB per site")

# %%
plt.figure(figsize=(6, 3.4))
for name, run in runs.items():
    points = [(row["round"] * STEPS, row["loss"]) for row in run.history if "loss" in row]
    plt.plot(*zip(*points, strict=True), label=name)
plt.xlabel("local steps of every site")
plt.ylabel("loss on held-out text, nats per character")
plt.legend(fontsize=8)
plt.tight_layout()
plt.show()

# %% [markdown]
# One run each, so differences of a few hundredths mean nothing; and a gain only counts if it beats the row of sending nothing. The sketches are weighted by the
# sites' own Adam, tensor by tensor. On real clusters the same idea is an outer step in your own loop: [transformers](../transformers.md).
