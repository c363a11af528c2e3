"""Hostile updates through a server session: refused by name, never fatal, never saved."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

import numpy as np
import parties
import pytest
import torch
from test_sessions import Liar, four

from desketch.core.checkpoint import load_checkpoint
from desketch.errors import ConfigError
from desketch.fed.robust import parse_rule
from desketch.session.agreement import Agreement
from desketch.session.server import ServerSession
from desketch.wire import CODEC_TABLE, Wire

sys.path.append(str(Path(__file__).parent.parent / "fed"))
from hostile_frames import hostile_frame


@pytest.mark.parametrize("codec", CODEC_TABLE)
@pytest.mark.parametrize("rule", [None, "none", "rfa"])
def test_no_update_ends_the_session_or_its_state(tmp_path: Path, codec: str, rule: str | None) -> None:
    session, nodes = parties.server(tmp_path, wire=Wire(b=200, codec=codec), robust=rule), four()
    rng, channel = np.random.default_rng(3), session.server.replica.channel
    honest = nodes[101]
    for t in range(1, 7):
        alter = functools.partial(dataclasses.replace, frame=hostile_frame(channel, t, rng))
        nodes[101] = Liar(honest, lambda reply, alter=alter: alter(reply).pack())
        report = parties.play(session, nodes)
        assert report.round == t
        assert set(report.refused) <= {"client 1"}
        assert report.void is not None or {0, 2, 3} <= set(report.participants)
        assert bool(session.w.isfinite().all())
        assert bool(load_checkpoint(tmp_path / "checkpoint")["server"]["replica"]["w"].isfinite().all())
    again = parties.server(tmp_path, wire=Wire(b=200, codec=codec), robust=rule)
    assert again.resumed
    assert again.digest() == session.digest()
    assert again.server.replica.channel.state_dict() == session.server.replica.channel.state_dict()


def test_a_claimed_weight_counts_for_no_more_than_the_agreed_size() -> None:
    def w_after(*, weight: float | None) -> torch.Tensor:
        sizes = {c: float(len(parties.client_data(c).y)) for c in range(4)}
        session, nodes = ServerSession(parties.agreement(), parties.flat_model().flatten(), sizes=sizes), four()
        channel = session.server.replica.channel
        if weight is not None:

            def inflate(reply):
                batch = channel.decode_updates(1, {0: reply.frame})
                (frame,) = channel.encode_sketches(1, torch.tensor(batch.values), clients=[0], weights=[weight])
                return dataclasses.replace(reply, frame=frame).pack()

            nodes[100] = Liar(nodes[100], inflate)
        report = parties.play(session, nodes)
        assert list(report.limited) == ([] if weight is None else ["client 0"])
        return session.w

    own = float(len(parties.client_data(0).y))
    assert torch.equal(w_after(weight=1e30), w_after(weight=own * 1.5))


def test_the_rule_is_part_of_the_agreement() -> None:
    plain, krum = parties.agreement(), parties.agreement(robust="krum:num_malicious_nodes=1")
    assert plain.run != krum.run
    read = Agreement.from_json(krum.to_json())
    assert read.channel().aggregator.rule == parse_rule("krum:num_malicious_nodes=1")
    with pytest.raises(ConfigError, match="expected one of none, norm-bound"):
        parties.server(robust="median")
