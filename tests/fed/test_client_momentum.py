"""Client momentum: unbiased means, faded sums, lost state, the number along the last step, liars and privacy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from desketch import Key
from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import ConfigError, InputError, PrivacyError
from desketch.fed import SketchChannel, make_optimizer, run
from desketch.fed.client import encode_updates
from desketch.fed.client_momentum import ClientMomentum, along_last_step, client_beta
from desketch.fed.rounds import Attendance
from desketch.privacy.mechanisms import SketchClipClients, SketchClipClientsShared
from desketch.privacy.settings import PerStep, SketchClip

D, BETA = 163, 0.8


def channel(**changes: Any) -> SketchChannel:
    return SketchChannel(**{"d": D, "b": 32, "key": Key(3), "codec": "int4", "run": 9, "along": True, **changes})


def with_means(build: Any, beta: float = BETA, **options: Any) -> Any:
    federation = build(channel=options.pop("channel", None) or channel(), memory=ClientMomentum(beta), **options)
    federation.server.replica.optimizer = make_optimizer(client_momentum=beta)
    return federation


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.floats(0.05, 0.95))
def test_what_is_sent_is_the_weighted_mean_of_all_updates_by_their_age(gaps: list[int], beta: float) -> None:
    memory, g, t = ClientMomentum(beta), torch.Generator().manual_seed(1), 0
    updates: list[tuple[int, torch.Tensor]] = []
    for gap in gaps:
        t += gap
        updates.append((t, torch.randn(5, generator=g)))
        sent = memory.means(t, updates[-1][1][None], clients=[7])[0]
        shares = torch.tensor([beta ** (t - when) for when, _ in updates])
        expected = (shares[:, None] * torch.stack([row for _, row in updates])).sum(0) / shares.sum()
        torch.testing.assert_close(sent, expected, rtol=1e-4, atol=1e-6)


def test_a_constant_update_is_sent_as_it_is_from_the_first_round_on() -> None:
    memory, row = ClientMomentum(0.8), torch.tensor([[3.0, -1.0, 0.5]])
    for t in (1, 2, 3, 7, 8):
        torch.testing.assert_close(memory.means(t, row, clients=[0]), row)


def test_means_leave_the_callers_rows_alone_and_clients_apart() -> None:
    memory, rows = ClientMomentum(0.5), torch.tensor([[1.0], [10.0]])
    memory.means(1, rows, clients=[0, 1])
    sent = memory.means(2, 2 * rows, clients=[0, 1])
    torch.testing.assert_close(sent, rows * (0.5 + 2) / 1.5)
    torch.testing.assert_close(rows, torch.tensor([[1.0], [10.0]]))


def test_a_client_that_lost_its_sums_starts_again() -> None:
    memory, row = ClientMomentum(0.8), torch.ones(1, 4)
    memory.means(1, row, clients=[0])
    memory.load_state_dict({})
    torch.testing.assert_close(memory.means(2, 5 * row, clients=[0]), 5 * row)
    memory.means(3, row, clients=[0])
    torch.testing.assert_close(memory.means(3, 7 * row, clients=[0]), 7 * row)  # a round again: another run


def test_the_number_beside_the_sketch_is_linear_in_the_raw_update() -> None:
    rows, s = torch.randn(3, D, generator=torch.Generator().manual_seed(2)), torch.full((D,), 2.0)
    one, two = along_last_step(rows, s, b=32), along_last_step(rows[:2] + rows[1:], s, b=32)
    assert two == pytest.approx([one[0] + one[1], one[1] + one[2]])
    assert one[0] == pytest.approx((D / 32) ** 0.5 * float(rows[0].sum()) / D**0.5)
    assert along_last_step(rows, None, b=32) == along_last_step(rows, 0 * s, b=32) == [0.0] * 3


def test_replicas_learn_the_step_from_the_raw_updates(build: Any) -> None:
    federation = with_means(build)
    run(federation, rounds=1)
    replica = federation.server.replica
    eta, s = replica.optimizer.eta, replica.optimizer.last_step
    for sign, grows in ((1, True), (-1, False)):
        rows = sign * s[None].repeat(2, 1)
        frames = channel().encode_updates(
            2, rows, clients=[0, 1], weights=[1.0, 1.0], along=along_last_step(rows, s, b=32)
        )
        step = channel().aggregate(2, dict(enumerate(frames)))
        update = channel().decode_broadcast(2, step.broadcast)
        other = make_optimizer(client_momentum=BETA)
        other.load_state_dict(replica.optimizer.state_dict())
        other.apply(replica.w.clone(), update)
        assert (other.eta > eta) is grows
        assert update.along == pytest.approx(sign * (D / 32) ** 0.5 * float(s.norm()), rel=1 / 8)


def test_training_with_means_learns_resumes_bit_for_bit_and_needs_no_server_momentum(build: Any) -> None:
    whole, first, second = (with_means(build, attendance=Attendance(fraction=0.7, seed=1)) for _ in range(3))
    run(whole, rounds=12)
    assert whole.evaluate(whole.model_vector)["accuracy"] > 0.8
    run(first, rounds=5)
    second.load_state_dict(unpack_tree(pack_tree(first.state_dict())))
    run(second, rounds=12)
    assert second.digest() == whole.digest()
    assert "m" not in whole.server.replica.optimizer.tensors
    forgetful = with_means(build, attendance=Attendance(fraction=0.7, seed=1))
    forgetful.load_state_dict(unpack_tree(pack_tree(first.state_dict())) | {"memory": {}})
    run(forgetful, rounds=12)
    assert forgetful.digest() != whole.digest()  # the sums are what a resumed run needs
    assert forgetful.evaluate(forgetful.model_vector)["accuracy"] > 0.8


@pytest.mark.parametrize("lie", [6e4, -6e4])
@pytest.mark.parametrize("rule", [None, "rfa", "trimmed-mean:beta=0.2"])
def test_one_liar_about_the_step_does_not_take_it_away(build: Any, lie: float, rule: str | None) -> None:
    """Its number counts like a coordinate of its sketch: within the norm bound, or with the rule's rows."""
    honest, lied = with_means(build, clients=8, channel=channel(robust=rule)), channel(robust=rule)
    encode = lied.encode_updates

    def lying(t: int, deltas: Any, *, clients: Any, weights: Any, along: Any) -> Any:
        along = [lie if client == 0 else value for client, value in zip(clients, along, strict=True)]
        return encode(t, deltas, clients=clients, weights=weights, along=along)

    lied.encode_updates = lying  # type: ignore[method-assign, assignment]
    hurt = with_means(build, clients=8, channel=lied)
    run(honest, rounds=15)
    run(hurt, rounds=15)
    assert hurt.evaluate(hurt.model_vector)["accuracy"] > honest.evaluate(honest.model_vector)["accuracy"] - 0.1
    ratio = hurt.server.replica.optimizer.eta / honest.server.replica.optimizer.eta
    assert 0.2 < ratio < 5


def test_sketch_and_number_are_clipped_together() -> None:
    """The sensitivity of a round is C for both, whatever a client puts where."""
    mechanism = SketchClipClients(clip=1.0, noise_multiplier=1e-3, sampling_rate=1.0, clients=2)
    sent = channel(mechanism=mechanism, codec="f32", codec_down="f32")
    moved = []
    for delta, along in ((100.0, 0.0), (0.0, 1e4), (100.0, 100.0 * D**0.5), (1e-3, 7.0)):
        rows = torch.zeros(2, D)
        rows[0, 0] = delta
        frames = sent.encode_updates(1, rows, clients=[0, 1], weights=[1.0, 1.0], along=[along, 0.0])
        batch = sent.decode_updates(1, {0: frames[0]})  # what left the client is clipped already; a byte rounds by 1/8
        assert float((batch.values**2).sum() + (batch.extra**2).sum()) <= 1.125**2
        step = sent.aggregate(1, dict(enumerate(frames)))
        update = sent.decode_broadcast(1, step.broadcast)
        moved.append(2 * (update.norm**2 + float(update.along or 0) ** 2) ** 0.5)
    assert moved == pytest.approx([1.0] * 4, abs=0.02)


def test_noise_hides_the_number_too() -> None:
    mechanism = SketchClipClients(clip=1.0, noise_multiplier=2.0, sampling_rate=1.0, clients=1)
    sent = channel(mechanism=mechanism, codec="f32", codec_down="f32")
    seen = []
    for t in range(1, 401):
        frames = sent.encode_updates(t, torch.zeros(1, D), clients=[0], weights=[1.0], along=[0.0])
        step = sent.aggregate(t, {0: frames[0]})
        seen.append(sent.decode_broadcast(t, step.broadcast).along or 0.0)
    assert float(torch.tensor(seen).std()) == pytest.approx(2.0, rel=0.15)  # 4 standard errors of 400 draws


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, 0.8),
        ({"local_steps": 6}, 0.65),
        ({"local_steps": 20}, 0.65),
        ({"local_steps": 21}, 0.0),
        ({"numbers": 1 << 26}, 0.8),
        ({"numbers": (1 << 26) + 1}, 0.0),
        ({"local_steps": None}, 0.0),
        ({"fraction": 0.5}, 0.0),
        ({"plain": False}, 0.0),
        ({"topology": True}, 0.0),
        ({"privacy": PerStep(clip=1.0, delta=1e-5, epsilon=1.0)}, 0.0),
        ({"privacy": SketchClip(clip=1.0, delta=1e-5, epsilon=1.0)}, 0.0),
        ({"privacy": SketchClip(clip=1.0, delta=1e-5, epsilon=1.0, unit="example")}, 0.0),
        ({"privacy": SketchClip(clip=1.0, delta=1e-5, epsilon=1.0, noise_by="clients")}, 0.0),
    ],
)
def test_auto_follows_what_everybody_knows(facts: dict[str, Any], expected: float) -> None:
    assert client_beta("auto", **({"local_steps": 5} | facts)) == expected
    assert client_beta(0.3, numbers=1 << 40) == 0.3


def test_what_cannot_be_had_is_refused(build: Any) -> None:
    for wrong in (1.0, -0.1, "on", float("nan")):
        with pytest.raises(ConfigError, match=r"in \[0, 1\)"):
            client_beta(wrong)  # type: ignore[arg-type]
    for facts in ({"topology": True}, {"privacy": SketchClip(clip=1.0, delta=1e-5, epsilon=1.0, unit="example")}):
        with pytest.raises(ConfigError, match="set it to 0 or auto"):
            client_beta(0.8, **facts)  # type: ignore[arg-type]
        assert client_beta(0, **facts) == 0  # type: ignore[arg-type]
    shared = SketchClipClientsShared(clip=1.0, noise_multiplier=1.0, sampling_rate=1.0, clients=2)
    with pytest.raises(PrivacyError, match="client_momentum"):
        channel(mechanism=shared, codec="f32")

    class OnlySketches:
        client = 0

        def update(self, w: Any, t: int) -> Any: ...

        def sketched_update(self, R: Any, w: Any, t: int) -> Any:
            return torch.zeros(32), 1.0

    with pytest.raises(InputError, match="client_momentum"):
        encode_updates([OnlySketches()], channel(), torch.zeros(D), t=1)
