"""Labels read off the sketch before any picture is: a linear regression in the sketch domain.

For cross-entropy G is linear in the soft target: G(x, y) = Σ_c y_c G(x, e_c).  At a public probe x the C columns
R G(x, e_c) explain most of s, so least squares estimates the class frequencies of the batch; the multisets of labels
are then tried in order of their distance to the estimate, and the residual of the attack confirms or refutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import comb

import torch
from torch import Tensor

from desketch.attack.objective import Objective

__all__ = ["candidate_labels", "class_frequencies"]

_MAX_MULTISETS = 50_000


def class_frequencies(objective: Objective, probes: Tensor, classes: int) -> Tensor:
    """Least-squares estimate of the class frequencies (C,), averaged over the probes (P, m)."""
    update, total = objective.update, torch.zeros(classes, dtype=torch.float64)
    targets = torch.eye(classes, dtype=torch.float64)
    for x in probes:
        columns, values = [], []
        for o in objective.observations:
            g = torch.stack([update(o.w, x, e.expand(update.examples, classes)) for e in targets])
            columns.append(o.sketch(g).T)
            values.append(o.s)
        A, s = torch.cat(columns), torch.cat(values)
        gram = A.T @ A
        gram.diagonal().add_(1e-6 * gram.diagonal().mean())
        total += torch.linalg.solve(gram, A.T @ s)
    return total / len(probes)


def candidate_labels(frequencies: Tensor, examples: int) -> Iterator[Tensor]:
    """Label vectors (examples,) from the likeliest on; order inside a batch carries no information."""
    classes = frequencies.numel()
    if comb(classes + examples - 1, examples) > _MAX_MULTISETS:
        yield _largest_remainders(frequencies, examples)
        return
    multisets = torch.tensor(list(combinations_with_replacement(range(classes), examples)))
    counts = torch.nn.functional.one_hot(multisets, classes).sum(1).double() / examples
    order = (counts - frequencies).square().sum(1).argsort(stable=True)
    yield from multisets[order]


def _largest_remainders(frequencies: Tensor, examples: int) -> Tensor:
    share = frequencies.clamp(min=0)
    share = share * examples / share.sum().clamp(min=1e-12)
    counts = share.floor().long()
    short = examples - int(counts.sum())
    counts[(share - counts).argsort(descending=True)[:short]] += 1
    return torch.repeat_interleave(torch.arange(len(counts)), counts)
