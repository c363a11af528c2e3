"""Algorithm 1: replicas, averages, attendance, refusals."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from desketch import Key, draw
from desketch.core.on_demand import OnDemand
from desketch.errors import BudgetError, InputError
from desketch.fed import (
    OPTIMIZERS,
    Attendance,
    ClientData,
    Federation,
    LocalWork,
    Observer,
    Privacy,
    Replica,
    RoundRecord,
    SketchChannel,
    encode_update,
    encode_updates,
    make_average,
    make_optimizer,
    run,
)
from desketch.fed.client import Participant
from desketch.fed.iterates import LocalIterates
from desketch.fed.local import batch_indices

Build = Callable[..., Federation]


def test_training_learns_untuned(build: Build, log: Any) -> None:
    run(build(), rounds=40, observer=log)
    assert log.records[-1].metrics["accuracy"] > 0.85 > log.records[0].metrics["accuracy"]


def test_one_round_of_plain_sgd_is_the_paper_s_update(build: Build) -> None:
    f = build(optimizer="sgd", eta_global=0.7, codec="f32", work=LocalWork(steps=2, eta=0.1, batch=None))
    w0, R = f.w0.clone(), f.channel.sketch_at(1)  # type: ignore[attr-defined]
    deltas = torch.stack([client.update(w0, 1)[0] for client in f.clients])
    share = torch.tensor([c.weight for c in f.clients])
    mean = (share[:, None] * deltas).sum(0) / share.sum()
    run(f, rounds=1)
    torch.testing.assert_close(f.server.replica.w, w0 + 0.7 * R.desketch(R.sketch(mean)), rtol=1e-4, atol=1e-6)


class Frames(Observer):
    """Plays the network: collects every frame the clients sent."""

    def __init__(self, f: Federation) -> None:
        self.f, self.sent, self.records = f, [], []  # type: ignore[var-annotated]

    def on_frames(self, t: int, w: Tensor, frames: Mapping[int, bytes]) -> None:
        self.sent.append((t, w.clone(), dict(frames)))

    def on_round(self, record: RoundRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("eta_global", ["auto", 0.3])
def test_a_client_that_sees_only_broadcasts_has_the_server_s_bits(
    build: Build, log: Any, optimizer: str, eta_global: object
) -> None:
    f = build(optimizer=optimizer, eta_global=eta_global, codec="sign1")
    replica = Replica(f.w0, optimizer=make_optimizer(optimizer, eta_global=eta_global), channel=f.channel)  # type: ignore[arg-type]
    for t in range(1, 7):
        run(f, rounds=t, observer=log)
        replica.catch_up(f.server.log.package(replica.version, f.server.replica.checkpoint))
        assert replica.digest() == log.records[-1].digest
    assert replica.version == 6


def test_a_client_alone_sends_what_it_sends_in_a_cohort(build: Build) -> None:
    f = build(codec="f32", engine="loop")
    net = Frames(f)
    run(f, rounds=2, observer=net)
    for t, w, sent in net.sent:
        for client, frame in sent.items():
            assert frame == encode_update(f.clients[client], f.channel, w, t=t)


def test_the_mean_weighs_clients_by_their_examples() -> None:
    channel = SketchChannel(d=40, b=40, key=Key(1), family="srht", codec="f32")
    deltas = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    frames = channel.encode_updates(1, deltas, clients=[4, 5, 6], weights=[1.0, 2.0, 5.0])
    step = channel.aggregate(1, dict(zip([4, 5, 6], frames, strict=True)))
    assert step.broadcast is not None
    assert step.participants == (4, 5, 6)
    R = channel.sketch_at(1)
    u = channel.decode_broadcast(1, step.broadcast)
    mean = (torch.tensor([1.0, 2.0, 5.0]) / 8) @ deltas
    torch.testing.assert_close(u.vector, R.desketch(R.sketch(mean)), rtol=1e-4, atol=1e-5)
    assert u.norm == pytest.approx(float(R.sketch(mean).norm()), rel=1e-5)


def test_bytes_are_the_lengths_of_frames(build: Build, log: Any) -> None:
    f = build()
    net = Frames(f)
    run(f, rounds=4, observer=net)
    for (_, _, sent), record in zip(net.sent, net.records, strict=True):
        assert record.bytes_up == sum(map(len, sent.values()))
    broadcast = len(f.server.log.package(3, f.server.replica.checkpoint).broadcasts[0][1])
    assert net.records[-1].bytes_down == 6 * broadcast


def test_absentees_pay_for_what_they_missed(build: Build, log: Any) -> None:
    f = build(clients=12, attendance=Attendance(fraction=0.25, seed=2), codec="f32")
    run(f, rounds=12, observer=log)
    assert {r.participants for r in log.records} == {3}
    final = max(f.server.versions.values())
    assert final == 12
    # every client downloaded each broadcast up to its version exactly once
    frame = len(f.server.log.package(11, f.server.replica.checkpoint).broadcasts[0][1])
    assert sum(r.bytes_down for r in log.records) == frame * sum(f.server.versions.values())


def test_attendance_does_not_shift_other_clients_batches(build: Build) -> None:
    f = build(engine="loop")
    alone, _ = f.clients[3].crew.updates(f.w0, [f.clients[3]], 5)
    together, _ = f.clients[3].crew.updates(f.w0, f.clients, 5)
    torch.testing.assert_close(alone[0], together[3], rtol=0, atol=0)


def test_dropouts_send_nothing_and_late_frames_cost_but_do_not_count(build: Build, log: Any) -> None:
    run(build(attendance=Attendance(dropout=0.4, straggler=0.4, seed=7)), rounds=8, observer=log)
    assert any(r.dropped for r in log.records)
    assert any(r.late for r in log.records)
    for r in log.records:
        assert r.participants + r.dropped + r.late == 6
        assert (r.bytes_up == 0) == (r.participants + r.late == 0)


def test_a_round_without_updates_is_recorded_and_skipped(build: Build, log: Any) -> None:
    f = build(attendance=Attendance(dropout=1.0))
    run(f, rounds=3, observer=log)
    assert [r.participants for r in log.records] == [0, 0, 0]
    torch.testing.assert_close(f.server.replica.w, f.w0, rtol=0, atol=0)
    assert f.t == 3


def test_a_client_that_diverges_is_refused_and_named(build: Build, perceptron: Any, blobs: Any, log: Any) -> None:
    data = blobs(4)
    data[2] = ClientData(2, torch.full_like(data[2].x, float("nan")), data[2].y)
    f = build(data=data)
    run(f, rounds=2, observer=log)
    assert set(log.records[-1].refused) == {2}
    assert "not finite" in log.records[-1].refused[2]
    assert log.records[-1].participants == 3
    assert f.server.replica.w.isfinite().all()
    with pytest.raises(InputError, match="client 2"):
        encode_update(f.clients[2], f.channel, f.w0, t=1)


def test_a_damaged_frame_is_refused_and_the_round_goes_on(build: Build) -> None:
    f = build()
    frames, _ = encode_updates(f.clients, f.channel, f.w0, t=1)
    frames[4] = frames[4][:-1] + bytes([frames[4][-1] ^ 1])
    step = f.channel.aggregate(1, frames)
    assert set(step.refused) == {4}
    assert step.participants == (0, 1, 2, 3, 5)


class Budget:
    """A ledger that affords n rounds."""

    def __init__(self, n: int) -> None:
        self.n, self.spent = n, 0

    def charge(self, t: int) -> None:
        if self.spent == self.n:
            raise BudgetError("no budget left")
        self.spent += 1

    def epsilon(self) -> float:
        return float(self.spent)

    def state_dict(self) -> dict[str, int]:
        return {"spent": self.spent}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.spent = state["spent"]


def test_training_stops_before_the_release_that_would_break_the_budget(build: Build, log: Any) -> None:
    f = build(privacy=Privacy(ledger=Budget(3)))
    run(f, rounds=10, observer=log)
    assert f.spent_budget
    assert [r.epsilon for r in log.records] == [1.0, 2.0, 3.0]
    assert f.t == 3


def test_averages_are_means_of_the_iterates(build: Build) -> None:
    for last, n in ((3, 3), ("all", 5), (1, 1)):
        f = build(average=make_average(last, d=1))  # type: ignore[arg-type]
        iterates = []
        for t in range(1, 6):
            run(f, rounds=t)
            iterates.append(f.server.replica.w.clone())
        torch.testing.assert_close(f.model_vector, torch.stack(iterates[-n:]).mean(0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n", [2, 10])
def test_a_fading_mean_is_as_old_as_the_last_n_and_leaves_as_much_noise(n: int) -> None:
    average = make_average(n, d=10**9)
    for t in range(400):
        average.add(torch.eye(400)[t])
        if t == 0:
            assert average.of(torch.zeros(400))[0] == 1  # the first mean is w^1 itself
    weights = average.of(torch.zeros(400)).double().flip(0)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-5)
    assert float((weights * torch.arange(400)).sum()) == pytest.approx((n - 1) / 2, rel=1e-4)
    assert float(weights.square().sum()) == pytest.approx(1 / n, rel=1e-4)


def test_a_fading_mean_goes_on_from_its_state_bit_for_bit(build: Build) -> None:
    whole, cut = build(average=make_average(3, d=10**9)), build(average=make_average(3, d=10**9))
    run(whole, rounds=6)
    run(cut, rounds=3)
    state = copy.deepcopy(cut.state_dict())
    run(cut, rounds=5)  # what was saved is not touched by what comes after
    again = build(average=make_average(3, d=10**9))
    again.load_state_dict(state)
    run(again, rounds=6)
    assert torch.equal(again.model_vector, whole.model_vector)
    assert not torch.equal(again.model_vector, again.server.replica.w)


def test_clients_that_are_no_list_are_made_when_asked_and_checked_then(build: Build) -> None:
    listed = build(attendance=Attendance(fraction=0.5))
    people = list(listed.clients)
    asked: list[int] = []

    def make(c: int) -> Participant:
        asked.append(c)
        return people[c]

    crowd = build(attendance=Attendance(fraction=0.5))
    crowd = dataclasses.replace(crowd, clients=OnDemand(len(people), make), optimizer=copy.deepcopy(crowd.optimizer))
    asked.clear()
    run(crowd, rounds=1)
    assert asked == listed.attendance.cohort(1, len(people))
    run(listed, rounds=1)
    assert crowd.digest() == listed.digest()
    swapped = dataclasses.replace(crowd, clients=OnDemand(len(people), lambda c: people[min(c, 1)]))
    with pytest.raises(InputError, match=r"clients\[\d\] must have the id \d, got 1"):
        run(swapped, rounds=3)


def test_options_of_the_family_are_agreed_beforehand_and_decide_every_r_t() -> None:
    """A frame carries the family's code only: a channel with other options reads it, and de-sketches with another R."""
    g = torch.linspace(-1, 1, 100)
    hadamard, fourier, other = (
        SketchChannel(d=100, b=50, key=Key(3), codec="f32", options=options)
        for options in ({}, {"transform": "fourier"}, {"transform": "fourier"})
    )
    (frame,) = fourier.encode_updates(4, g[None], clients=[0], weights=[1.0])
    step = other.aggregate(4, {0: frame})
    assert step.broadcast is not None
    R = draw("srht", d=100, b=50, key=Key(3).fold_in("round", 4), transform="fourier")
    torch.testing.assert_close(other.decode_broadcast(4, step.broadcast).vector, R.desketch(R.sketch(g)))
    wrong = hadamard.decode_broadcast(4, step.broadcast).vector
    assert float((wrong - R.desketch(R.sketch(g))).norm()) > 0.5


def test_the_theorems_w_bar_is_the_mean_over_clients_local_steps_and_rounds(build: Build) -> None:
    """By hand: (1/KT) sum of the weighted means of u_c^{t,k}, k < K, from w^0 on; and it survives a resume."""
    f = build(average=(average := LocalIterates()), visit=average.visit)
    wbar = torch.zeros_like(f.w0, dtype=torch.float64)
    for t in range(1, 4):
        w = f.server.replica.w.clone()
        total = sum(client.weight for client in f.clients)
        for client in f.clients:
            u, data, work, model = w.clone(), client.data, client.crew.work, client.crew.engine.model
            for index in batch_indices(work, t=t, client=data.client, examples=len(data.y)):
                wbar += u.double() * data.weight / (total * work.steps * 3)
                u -= work.eta * model.gradient(u, data.x[index], data.y[index])
        run(f, rounds=t)
        if t == 2:
            state, f = f.state_dict(), build(average=(average := LocalIterates()), visit=average.visit)
            f.load_state_dict(state)
    torch.testing.assert_close(f.model_vector, wbar.float(), rtol=1e-5, atol=1e-7)


def test_local_iterates_come_from_the_loop_alone(build: Build) -> None:
    with pytest.raises(InputError, match="local iterates"):
        build(engine="mlp", visit=lambda u, weight: None)
