"""The server's judgement: whom it refuses, bounds and caps; what honest clients notice of it: nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_federation import Log, perceptron

from desketch import Key
from desketch.core.tree import pack_tree, unpack_tree
from desketch.errors import ConfigError
from desketch.fed import Federation, SketchChannel, run
from desketch.fed.aggregation import WINDOW, Aggregator
from desketch.fed.robust import parse_rule
from desketch.hostile.attacks import corrupt
from desketch.run.folder import RunFolder
from desketch.wire.rows import Decoded

Build = Callable[..., Federation]
UNITS = torch.eye(6)


def judge(aggregator: Aggregator, rows: torch.Tensor, weights: list[float] | None = None, **known: Any) -> Any:
    claims = torch.tensor(weights or [1.0] * len(rows), dtype=torch.float64)
    return aggregator.judge(range(len(rows)), Decoded(rows.numpy()), claims, **known)


def channel(**settings: Any) -> SketchChannel:
    return SketchChannel(**{"d": perceptron().d, "b": 32, "key": Key(3), "codec": "int4", "run": 9, **settings})


def test_long_rows_are_scaled_and_far_too_long_ones_refused() -> None:
    rows = UNITS.clone()
    rows[4] *= 8
    rows[5] *= 10
    told = judge(Aggregator(parse_rule("norm-bound:factor=3")), rows)
    assert told.participants == (0, 1, 2, 3, 4)
    assert told.refused == {5: "norm: got 10, an update has at most 9"}
    assert told.limited == {4: "norm 8 bounded at 3"}
    torch.testing.assert_close(told.y, torch.tensor([1.0, 1, 1, 1, 3, 0]) / 5)


def test_the_reference_runs_over_the_last_rounds() -> None:
    """A cohort of one is judged by those before it; norms that really grow are followed, a factor at a time."""
    aggregator = Aggregator(parse_rule(None))
    for _ in range(WINDOW):
        assert judge(aggregator, UNITS).limited == {}
    assert judge(aggregator, 8 * UNITS[:1]).limited == {0: "norm 8 bounded at 3"}
    grown = [judge(aggregator, 1000 * UNITS) for _ in range(40)]
    assert grown[0].void is not None
    assert set(grown[0].refused) == set(range(6))
    assert grown[3].void is not None  # it follows what passed, not what was sent
    assert grown[-1].limited == {}
    assert grown[-1].participants == tuple(range(6))


def test_zeros_do_not_drag_the_reference_down() -> None:
    rows = UNITS.clone()
    rows[:4] = 0
    assert judge(Aggregator(parse_rule(None)), rows).limited == {}
    silent = judge(Aggregator(parse_rule(None)), torch.zeros(3, 6))
    assert silent.participants == (0, 1, 2)
    assert torch.equal(silent.y, torch.zeros(6))


def test_weights_are_capped_by_the_agreed_size_or_the_median_claim() -> None:
    agreed = Aggregator(parse_rule("none"), sizes=dict.fromkeys(range(6), 2.0))
    told = judge(agreed, UNITS, [1.0, 2, 2, 2, 2, 3e38])
    assert told.limited == {5: "weight 3e+38 capped at 2"}
    torch.testing.assert_close(told.y, torch.tensor([1.0, 2, 2, 2, 2, 2]) / 11)
    claimed = judge(Aggregator(parse_rule(None)), UNITS, [1.0, 2, 2, 2, 10, 3e38])
    assert claimed.limited == {5: "weight 3e+38 capped at 10"}
    torch.testing.assert_close(claimed.y, torch.tensor([1.0, 2, 2, 2, 10, 10]) / 27)
    trusted = judge(Aggregator(parse_rule("none")), UNITS, [1.0, 1, 1, 1, 1, 3e38])
    assert trusted.limited == {}
    torch.testing.assert_close(trusted.y, UNITS[5])


def test_an_odd_weight_is_not_above_itself() -> None:
    """Weights travel as float32: 0.1 agreed on is not exceeded by 0.1 received."""
    received = float(torch.tensor(0.1))
    told = judge(Aggregator(parse_rule(None), sizes=dict.fromkeys(range(6), 0.1)), UNITS, [received] * 6)
    assert told.limited == {}


def test_a_caught_liar_does_not_end_krum_s_rounds() -> None:
    rows = torch.ones(7, 6) + 0.1 * torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    rows[6] *= 1e6
    krum = Aggregator(parse_rule("krum:num_malicious_nodes=2"))
    assert judge(krum, rows).void is None
    told = judge(krum, rows[:5])
    assert told.void == "krum:num_malicious_nodes=2 needs 7 updates, 5 came"
    assert judge(krum, rows[:5], found=2).void is None


@pytest.mark.parametrize("codec", ["f32", "int8", "sign1"])
def test_honest_runs_are_those_of_the_plain_mean(build: Build, codec: str) -> None:
    plain = build(channel=channel(codec=codec, robust="none"))
    bounded = build(channel=channel(codec=codec))
    log = Log()
    run(plain, rounds=8)
    run(bounded, rounds=8, observer=log)
    assert [record.limited for record in log.records] == [{}] * 8
    assert plain.digest() == bounded.digest()


def test_the_order_of_frames_changes_no_bit() -> None:
    one, other = channel(), channel()
    updates = torch.randn(6, perceptron().d, generator=torch.Generator().manual_seed(1))
    sent = one.encode_updates(1, updates, clients=range(6), weights=[float(c + 1) for c in range(6)])
    frames = dict(enumerate(sent))
    backwards = dict(reversed(frames.items()))
    assert one.aggregate(1, frames).broadcast == other.aggregate(1, backwards).broadcast


@pytest.mark.parametrize("rule", [None, "rfa", "krum:num_malicious_nodes=1"])
def test_a_resumed_run_keeps_its_reference(build: Build, tmp_path: Path, rule: str | None) -> None:
    def make() -> Federation:
        federation = build(clients=8, channel=channel(robust=rule))
        federation.clients = corrupt(federation.clients, frozenset({2}), "ipm")
        return federation

    whole = make()
    run(whole, rounds=9)
    cut = RunFolder(tmp_path, make(), checkpoint_every=3)
    cut.start()
    run(cut.federation, rounds=5, observer=cut)
    again = RunFolder(tmp_path, make())
    again.resume()
    assert len(again.federation.channel.state_dict()["norms"]) == 3
    run(again.federation, rounds=9)
    assert again.federation.digest() == whole.digest()
    state = unpack_tree(pack_tree(whole.state_dict()))
    assert state["server"]["channel"]["norms"] == whole.channel.state_dict()["norms"]


@pytest.mark.parametrize("attack", ["sign-flip", "weight", "gaussian"])
def test_one_liar_of_twenty_costs_the_default_run_nothing_much(build: Build, attack: str) -> None:
    """x -100, a weight of 10^6, noise: within a point of the run in which nobody lies; the plain mean is lost."""

    def accuracy(rule: str | None, liars: frozenset[int]) -> float:
        sizes = {c: 24.0 + c % 3 for c in range(20)}
        federation = build(clients=20, channel=channel(robust=rule, sizes=sizes if rule is None else None))
        federation.clients = corrupt(federation.clients, liars, attack)
        log = Log()
        run(federation, rounds=20, observer=log)
        return log.records[-1].metrics["accuracy"]

    honest = accuracy(None, frozenset())
    assert honest > 0.8
    assert accuracy(None, frozenset({3})) > honest - 0.01
    assert accuracy("none", frozenset({3})) < honest - 0.1


def test_without_a_server_a_rule_is_refused(build: Build) -> None:
    from desketch.mesh.topology import build_topology
    from desketch.mesh.tree import TreeMesh

    f = build()
    settings = {"clients": f.clients, "topology": build_topology("ring", 6), "optimizer": f.optimizer, "w0": f.w0}
    with pytest.raises(ConfigError, match="without a server nobody sees all updates apart"):
        TreeMesh(**settings, channel=channel(robust="rfa"))
    TreeMesh(**settings, channel=channel())
