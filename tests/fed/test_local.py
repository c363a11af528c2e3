"""Local work by hand: K steps down the gradients of the batches that were drawn, and the change they make."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from desketch.fed import ClientData, LocalWork
from desketch.fed.local import batch_indices, local_update


@pytest.mark.parametrize("batch", [None, 8])
def test_the_update_is_the_change_that_k_descents_make(batch: int | None, blobs: Any, perceptron: Any) -> None:
    model, data, work = perceptron(), blobs(3)[2], LocalWork(steps=5, eta=0.1, batch=batch, seed=4)
    w = model.flatten()
    u = w.clone()
    index = batch_indices(work, t=3, client=2, examples=len(data.y))
    assert index.shape == (5, len(data.y) if batch is None else 8)
    for k in range(5):
        rows = torch.arange(len(data.y)) if batch is None else index[k]
        u = u - 0.1 * model.gradient(u, data.x[rows], data.y[rows])
    torch.testing.assert_close(local_update(model, w, data, work, t=3), u - w)
    before, after = (model.evaluate(v, data.x, data.y)["loss"] for v in (w, u))
    assert after < before


def test_a_client_weighs_as_many_examples_as_it_has_unless_told(blobs: Any) -> None:
    x, y = torch.zeros(7, 2), torch.zeros(7)
    assert ClientData(0, x, y).weight == 7.0
    assert ClientData(0, x, y, weight=2.5).weight == 2.5
