"""Site: ranks on a fast network (DDP inside) that share one place in the exchange between sites.

The first rank of the site, its lead, takes part in the outer exchange; the others wait for the parameters it makes of
it.  The thin link between sites carries one exchange a site, however many ranks a site has.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from desketch.errors import RunError

__all__ = ["Site"]


class Site:
    """The process group inside a site."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.leads = group, dist.get_rank(group) == 0
        nccl = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def give(self, w: Tensor, rounds: int) -> None:
        """Lead: the parameters after so many rounds, for everyone here."""
        self._flag(1 + rounds)
        dist.broadcast(w.to(self.device), group_src=0, group=self.group)

    def give_up(self) -> None:
        """Lead: the round failed, nobody here shall wait for it."""
        self._flag(0)

    def take(self, w: Tensor) -> tuple[Tensor, int]:
        """The others: the lead's parameters, written over ``w``, and its rounds."""
        flag = self._flag(0)
        if not flag:
            raise RunError(
                "the lead of this site could not finish an outer round, its error says why; nothing was applied here"
            )
        moved = w.to(self.device)
        dist.broadcast(moved, group_src=0, group=self.group)
        return w.copy_(moved), flag - 1

    def _flag(self, value: int) -> int:
        flag = torch.tensor([value], device=self.device)
        dist.broadcast(flag, group_src=0, group=self.group)
        return int(flag)
