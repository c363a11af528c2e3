"""One site of the elastic test: trains until a site was lost and another joined, and reports what it saw."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import nn

from desketch import Key
from desketch.integrations.torch.agreement import digest
from desketch.integrations.torch.elastic import ElasticOuter


def main() -> None:
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(40, 20)
    torch.manual_seed(job["seed"])
    if job["role"] == "joins":
        sys.stdin.readline()  # all is imported; wait for the word
        nn.init.zeros_(model.weight)  # what it starts from does not matter
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = ElasticOuter(
        model,
        optimizer,
        lighthouse=job["lighthouse"],
        name=job["role"],
        address="localhost",
        patience=20.0,
        every=2,
        compression=4,
        key=Key(7),
    )
    seen, wanted = [], [3, 2, 3] if job["role"] == "stays" else [3]
    while len(seen) < 5000:
        x = torch.randn(16, 40)
        (model(x) - x[:, :20]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if job["role"] == "dies" and (outer.count + 1) % 2 == 0 and [n for _, n, _ in seen].count(3) >= 2:
            outer.exchange._all_to_all = lambda *given, **named: os._exit(9)  # in the middle of a round
        if not outer.step():
            continue
        seen.append([outer.round, outer.exchange.size, digest(outer.theta).hex()])
        changes = [n for i, (_, n, _) in enumerate(seen) if i == 0 or n != seen[i - 1][1]]
        if job["bell"] and [n for _, n, _ in seen[-2:]] == [3, 2]:
            os.write(job["bell"], b"!")
        tail = [n for _, n, _ in seen[-3:]]
        if changes[-len(wanted) :] == wanted and tail == [3, 3, 3] and job["role"] != "dies":
            break
    skipped = [[one.round, one.rank, one.reason] for one in outer.stats.skipped]
    print(json.dumps({"seen": seen, "skipped": skipped, "w": digest(outer.flat.flatten()).hex()}), flush=True)
    outer.close()
    os._exit(0)


if __name__ == "__main__":
    main()
