"""Two DDP ranks on this machine learn the digits, all-reducing sketches ten times smaller than the gradients.

``python examples/ddp.py`` starts both ranks itself; on a cluster, use torchrun and keep only the two marked lines.
"""

from __future__ import annotations

import multiprocessing
import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from desketch import Key
from desketch.integrations.torch import SketchState, sketch_hook

WORLD, STEPS, COMPRESSION = 2, 600, 10


def rank_main(rank: int, rendezvous: str) -> None:
    """Train one replica on every second example and report from rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    mine_x, mine_y = x[rank:1400:WORLD], y[rank:1400:WORLD]

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    state = SketchState(compression=COMPRESSION, key=Key(2023))  # line 1: what travels
    model.register_comm_hook(state, sketch_hook)  # line 2: instead of the gradient
    # A learning rate tuned without compression, here 0.1, shrinks by about sqrt(compression).
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / COMPRESSION**0.5, momentum=0.9)

    shuffle = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        i = torch.randint(len(mine_x), (64,), generator=shuffle)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(mine_x[i]), mine_y[i])
        torch.autograd.backward(loss)
        optimizer.step()

    if rank == 0:
        correct = (model(x[1400:]).argmax(1) == y[1400:]).float().mean()
        stats, note = state.compression_stats(), state.energy_note()
        print(f"test accuracy {correct:.1%} after {stats.steps} steps")
        print(f"payload {stats.bytes_sent / 1e6:.2f} MB per rank instead of {stats.bytes_plain / 1e6:.2f}")
        if note is not None:
            print(f"measured noise scale {note.noise_scale:.1f}: learning rate times {note.lr_factor:.2f}")
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        spawn = multiprocessing.get_context("spawn")
        ranks = [spawn.Process(target=rank_main, args=(rank, f"{folder}/rendezvous")) for rank in range(WORLD)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main()
