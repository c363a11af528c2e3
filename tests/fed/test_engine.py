"""Every engine computes what the loop over clients computes, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from desketch.errors import InputError
from desketch.fed import ClientData, FlatModel, LocalWork, LoopEngine, MlpEngine, VmapEngine, engine, make_engine


class Branching(nn.Module):
    """Its forward asks for a value, which torch.func cannot map."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (2.0 if x.sum().item() > 0 else 1.0)


def _conv() -> FlatModel:
    net = nn.Sequential(nn.Unflatten(-1, (1, 3, 4)), nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return FlatModel(nn.Sequential(*net, nn.Linear(24, 3)))


def _perceptron() -> FlatModel:
    return FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3)))


def _softmax() -> FlatModel:
    return FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))


def _deep() -> FlatModel:
    layers = [nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 6, bias=False), nn.Sigmoid(), nn.Linear(6, 3)]
    return FlatModel(nn.Sequential(*layers))


@pytest.mark.parametrize(
    ("make", "kind"), [(_perceptron, MlpEngine), (_softmax, MlpEngine), (_deep, MlpEngine), (_conv, LoopEngine)]
)
@pytest.mark.parametrize("batch", [8, 100, None])
def test_batched_engines_equal_the_loop(make: object, kind: type, batch: int | None, blobs: Any) -> None:
    torch.manual_seed(1)
    model, cohort = make(), blobs(7)  # type: ignore[operator]
    work = LocalWork(steps=4, eta=0.2, batch=batch, seed=3)
    fast = make_engine(model, (cohort[0].x[:2], cohort[0].y[:2]))
    assert type(fast) is kind
    w = model.flatten()
    expected = LoopEngine(model).updates(w, cohort, work, t=2)
    for other in (fast, VmapEngine(model)):
        torch.testing.assert_close(other.updates(w, cohort, work, t=2), expected, rtol=1e-4, atol=1e-6)


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, blobs: Any) -> None:
    model, cohort = _perceptron(), blobs(7)
    w, work = model.flatten(), LocalWork(steps=3, batch=8)
    whole = MlpEngine(model).updates(w, cohort, work, t=1)
    monkeypatch.setattr(engine, "CHUNK_BYTES", 4 * model.d * MlpEngine.copies * 2)
    torch.testing.assert_close(MlpEngine(model).updates(w, cohort, work, t=1), whole, rtol=1e-5, atol=1e-7)


def test_rows_taken_for_several_steps_at_once_are_those_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [ClientData(c, torch.randn(9, 2, 3), torch.arange(9)) for c in range(3)]
    index = torch.randint(9, (3, 7, 4))
    for limit in (1, 3 * 4 * 6 * 4 * 2, 1 << 20):  # one step, two, all
        monkeypatch.setattr(engine, "BATCH_BYTES", limit)
        steps = list(engine.batches(clients, index))
        assert len(steps) == 7
        for k, (x, y) in enumerate(steps):
            assert torch.equal(x, torch.stack([data.x[i] for data, i in zip(clients, index[:, k], strict=True)]))
            assert torch.equal(y, index[:, k])
    odd = ClientData(3, torch.randn(9, 2, 4), torch.arange(9))
    with pytest.raises(InputError, match=r"client 3 has examples \(2, 4\) torch.float32, client 0 \(2, 3\)"):
        next(engine.batches([*clients, odd], torch.zeros(4, 1, 2, dtype=torch.long)))


def test_a_chunk_holds_weights_and_batches_of_its_clients_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, blobs: Any
) -> None:
    model, cohort = _perceptron(), blobs(7)
    own = MlpEngine.copies * 4 * (model.d + 8 * 12)
    for clients in (1, 3):
        monkeypatch.setattr(engine, "CHUNK_BYTES", clients * own)
        sizes = [len(p) for p, _ in MlpEngine(model).chunks(model.flatten(), cohort, LocalWork(batch=8), t=1)]
        assert sizes == ([1] * 7 if clients == 1 else [3, 3, 1])


def test_the_loop_takes_what_cannot_be_mapped(blobs: Any) -> None:
    data = blobs(2)
    sample = data[0].x[:2], data[0].y[:2]
    assert type(make_engine(FlatModel(Branching()), sample)) is LoopEngine
    noisy = FlatModel(nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    loop = make_engine(noisy, sample)
    assert type(loop) is LoopEngine
    w, work = noisy.flatten(), LocalWork(steps=2, batch=8)
    first, again, later = (loop.updates(w, data, work, t=t) for t in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_an_empty_cohort_is_an_empty_matrix() -> None:
    model = _perceptron()
    for e in (LoopEngine(model), MlpEngine(model), VmapEngine(model)):
        assert e.updates(model.flatten(), [], LocalWork(), t=1).shape == (0, model.d)


def test_frozen_parameters_stay_and_running_statistics_are_refused() -> None:
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    net[0].requires_grad_(False)
    model = FlatModel(net)
    assert model.d == 27
    assert type(make_engine(model, (torch.ones(2, 12), torch.ones(2, dtype=torch.long)))) is VmapEngine
    with pytest.raises(InputError, match="GroupNorm"):
        FlatModel(nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    with pytest.raises(InputError, match="float32"):
        FlatModel(nn.Linear(2, 2).double())
    with pytest.raises(InputError, match="no trainable"):
        FlatModel(nn.Flatten())


def test_flat_and_structured_views_agree() -> None:
    model = _perceptron()
    w = torch.randn(model.d)
    x = torch.randn(5, 12)
    assert torch.equal(model.load(w)(x), model.predict(w, x))
    assert torch.equal(model.flatten(), w)


def test_local_work_is_checked() -> None:
    with pytest.raises(InputError, match="steps"):
        LocalWork(steps=0)
    with pytest.raises(InputError, match="unknown engine"):
        make_engine(_perceptron(), (torch.ones(1, 12), torch.ones(1, dtype=torch.long)), name="gpu")
    assert ClientData(0, torch.ones(4, 2), torch.ones(4)).weight == 4.0
