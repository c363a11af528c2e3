"""Weights a tensor: what is said when, what comes of it, who can bend it, and who has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import desketch as ds
from desketch import Key
from desketch.errors import ConfigError, InputError, PrivacyError
from desketch.fed import Observer, Replica, SketchChannel, make_optimizer
from desketch.fed.tensor_weights import TensorWeights
from desketch.theory.weights import adam_weights

SIZES = (24, 8, 8)
D = sum(SIZES)
MOMENTS = (2.0**-20, 2.0**-4, 2.0**-12)


def channel(**changes: Any) -> SketchChannel:
    settings = {"d": D, "b": 20, "key": Key(1), "codec": "f32", "tensor_weights": TensorWeights(SIZES)}
    return SketchChannel(**{**settings, **changes})


def frames(c: SketchChannel, t: int, moments: Any, deltas: torch.Tensor | None = None) -> dict[int, bytes]:
    n = len(moments)
    deltas = torch.ones(n, D) if deltas is None else deltas
    assert c.tensor_weights
    said = {"moments": [c.tensor_weights.say(m) for m in moments]} if c.tensor_weights.due(t) else {}
    sent = c.encode_updates(t, deltas, clients=range(n), weights=[1.0] * n, **said)
    return dict(enumerate(sent))


def play(c: SketchChannel, t: int, moments: Any) -> None:
    broadcast = c.aggregate(t, frames(c, t, moments)).broadcast
    assert broadcast
    c.learn(t, c.decode_broadcast(t, broadcast))


def test_moments_are_said_in_rounds_that_double() -> None:
    weights = TensorWeights(SIZES)
    assert [t for t in range(40) if weights.due(t)] == [1, 2, 4, 8, 16, 32]


def test_a_round_that_says_them_costs_one_f16_a_tensor_each_way() -> None:
    c = channel()
    due, plain = frames(c, 2, [MOMENTS]), frames(c, 3, [MOMENTS])
    assert len(due[0]) - len(plain[0]) == 2 * len(SIZES)
    down = [c.aggregate(t, said).broadcast for t, said in ((2, due), (3, plain))]
    assert len(down[0] or b"") - len(down[1] or b"") == 2 * len(SIZES)


def test_weights_are_those_of_adam_from_the_round_after() -> None:
    c = channel()
    assert c.tensor_weights
    play(c, 1, [MOMENTS] * 3)
    assert c.tensor_weights.at(1) is None
    got = c.tensor_weights.at(2)
    assert got
    scale = got[0] / adam_weights(MOMENTS, SIZES)[0]
    assert got == pytest.approx([scale * x for x in adam_weights(MOMENTS, SIZES)], rel=1e-4)
    assert sum(n / x**2 for x, n in zip(got, SIZES, strict=True)) == pytest.approx(D, rel=1e-4)  # lengths stay


def test_sketching_and_desketching_are_the_matrices_of_the_theory() -> None:
    c = channel()
    play(c, 1, [MOMENTS] * 2)
    delta = (torch.arange(D, dtype=torch.float32)[None] - 7) / 20
    broadcast = c.aggregate(3, frames(c, 3, [MOMENTS], delta)).broadcast
    assert broadcast
    R = c.sketch_at(3).sketch(torch.eye(D)).T.double()
    diagonal = torch.tensor([w for w, n in zip(adam_weights(MOMENTS, SIZES), SIZES, strict=True) for _ in range(n)])
    expected = diagonal * (R.T @ (R @ (delta[0].double() / diagonal)))
    assert torch.allclose(c.decode_broadcast(3, broadcast).vector.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("lie", [0.0, 2.0**100, 2.0**-100, float("nan")])
def test_one_liar_moves_no_weight_beyond_those_of_the_honest(lie: float) -> None:
    honest = [[v * f for v in MOMENTS] for f in (0.5, 1.0, 2.0)]
    c = channel()
    assert c.tensor_weights
    play(c, 1, [*honest, [lie, MOMENTS[1], 2.0**100]])
    got = c.tensor_weights.state_dict()["1"]
    for said, sides in zip(got, zip(*(c.tensor_weights.say(h) for h in honest), strict=True), strict=True):
        assert min(sides) <= said <= max(sides)


def test_only_clients_that_count_have_a_say() -> None:
    c = channel()
    assert c.tensor_weights
    deltas = torch.ones(3, D)
    deltas[0] *= 1e6  # refused by its norm
    honest = [MOMENTS, [v / 4 for v in MOMENTS]]
    step = c.aggregate(1, frames(c, 1, [[1.0] * 3, *honest], deltas))
    assert 0 in step.refused
    assert step.broadcast
    between = [x - 1 for x in c.tensor_weights.say(MOMENTS)]
    assert c.decode_broadcast(1, step.broadcast).moments == pytest.approx(between)


def test_a_replica_from_a_checkpoint_decodes_as_the_server_does() -> None:
    def fresh() -> Replica:
        return Replica(torch.ones(D), optimizer=make_optimizer("momentum"), channel=channel())

    server, late = fresh(), fresh()
    for t in (1, 2, 3):
        said = frames(server.channel, t, [[v * t for v in MOMENTS], MOMENTS[::-1]])  # type: ignore[arg-type]
        broadcast = server.channel.aggregate(t, said).broadcast
        server.apply(t, broadcast)
        if t == 2:
            late.load_state_dict(server.state_dict())
    late.apply(3, broadcast)
    assert late.digest() == server.digest()


def test_a_broadcast_that_cannot_be_applied_teaches_nothing() -> None:
    c = channel(robust="none")
    assert c.tensor_weights
    replica = Replica(torch.ones(D), optimizer=make_optimizer("sgd", eta_global=1e35), channel=c)
    broadcast = c.aggregate(1, frames(c, 1, [MOMENTS])).broadcast
    with pytest.raises(ds.DesketchError):
        replica.apply(1, broadcast)
    assert c.tensor_weights.at(2) is None


def test_private_channels_have_none() -> None:
    with pytest.raises(PrivacyError, match="second moments"):
        channel(mechanism=object())


def test_clients_without_second_moments_are_named_in_the_advice() -> None:
    with pytest.raises(InputError, match="Adam's kind"):
        TensorWeights(SIZES).say(None)


class Watch(Observer):
    """Bytes sent up in every round."""

    def __init__(self) -> None:
        self.up: list[int] = []

    def on_round(self, record: Any) -> None:
        self.up.append(record.bytes_up)


def federate(optimizer: Any = torch.optim.AdamW, **changes: Any) -> tuple[ds.Run, list[int]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    g = torch.Generator().manual_seed(5)
    clients = changes.pop("clients", None) or [
        ds.Client(torch.randn(24, 6, generator=g), torch.randint(3, (24,), generator=g)) for _ in range(3)
    ]
    watch = Watch()
    given = {"loss": cross_entropy, "rounds": 4, "local_steps": 2, "batch_size": 8, "wire": ds.Wire(compression=3)}
    run = ds.federate(model, clients, optimizer=optimizer, callbacks=[watch], progress=False, **(given | changes))
    return run, watch.up


def test_by_default_clients_of_adam_are_weighted_and_others_are_not() -> None:
    def own_loop(model: nn.Module) -> float:
        torch.optim.Adam(model.parameters()).step()
        return 1.0

    tensors = 4
    (_, adam), (_, sgd) = federate(), federate(lambda p: torch.optim.SGD(p, lr=0.1))
    assert [up - adam[2] for up in adam] == [3 * 2 * tensors, 3 * 2 * tensors, 0, 3 * 2 * tensors]
    assert len(set(sgd)) == 1
    assert len(set(federate(tensor_weights="none")[1])) == 1
    assert len(set(federate(clients=[ds.Client(train=own_loop)] * 2)[1])) == 1


@pytest.mark.filterwarnings("ignore::desketch.errors.PrivacyWarning")
def test_a_private_run_tells_no_second_moments() -> None:
    privacy = ds.SketchClip(unit="client", clip=1.0, noise_multiplier=1.0, delta=1e-3)
    _, up = federate(privacy=privacy, wire=ds.Wire(compression=3, codec="f32"))
    assert len(up) == 4
    assert len(set(up)) == 1  # nothing beside the sketch, in rounds 1, 2 and 4 either


def test_resume_is_bit_exact(tmp_path: Any) -> None:
    whole, _ = federate(rounds=7)
    federate(rounds=3, out=tmp_path)
    again, _ = federate(rounds=7, out=tmp_path, resume=True)
    assert again.digest == whole.digest


def test_weights_change_what_is_learned() -> None:
    assert federate()[0].digest != federate(tensor_weights="none")[0].digest


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="auto or none"):
        federate(tensor_weights="adam")
