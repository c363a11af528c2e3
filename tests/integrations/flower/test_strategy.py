"""SketchStrategy and sketch_mod on Flower's own classes: a grid in this process, an app written for plain FedAvg."""

from __future__ import annotations

import json
import uuid

import parties
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from desketch.errors import BudgetError, InputError
from desketch.fed.mechanism import Privacy
from desketch.integrations.flower import SketchMod, SketchStrategy, record, sketch_mod
from desketch.privacy.events import Ledger
from desketch.privacy.record import PrivacyRecord


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Messages are stamped with the task they belong to."""
    for name, value in {"_run_id": 1, "_node_id": 1, "_task_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


class LocalGrid(Grid):
    """Delivers messages by calling the apps; ``faults`` maps (node, round) to what happens instead."""

    def __init__(self, apps, folder, faults=None):
        self.apps, self.contexts, self.faults, self.folder = {}, {}, faults or {}, folder
        for node, app in apps.items():
            self.join(node, app)
        self.replies, self.sent = {}, []

    def join(self, node, app):
        """Connect a node; its client is what its id leaves modulo 100."""
        self.apps[node] = app
        self.contexts[node] = Context(
            run_id=1,
            node_id=node,
            node_config={"partition-id": node % 100, "state-folder": str(self.folder / str(node % 100))},
            state=RecordDict(),
            run_config={},
        )

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **options):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            name = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = name
            node = message.metadata.dst_node_id
            self.sent.append(list(message.content))
            fault = self.faults.get((node, int(message.metadata.group_id)), lambda app, m, c: app(m, c))
            reply = fault(self.apps[node], message, self.contexts[node])
            if reply is not None:
                self.replies[name] = reply
            ids.append(name)
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def fedavg_app(mod):
    """What a Flower user has: a ClientApp for FedAvg.  One argument makes it send sketches."""
    app = ClientApp(mods=[mod])

    @app.train()
    def train(message, context):
        model = net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = parties.client_data(context.node_config["partition-id"])
        optimizer = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"])
        shuffle = torch.Generator().manual_seed(int(message.content["config"]["server-round"]))
        for _ in range(10):
            i = torch.randint(len(data.y), (32,), generator=shuffle)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x[i]), data.y[i]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": len(data.y), "loss": 0.0})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def evaluate(t, arrays):
    x, y = parties.digits()
    model = net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": float((model(x[1400:]).argmax(1) == y[1400:]).float().mean())})


def start(strategy, grid, rounds):
    return strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        num_rounds=rounds,
        train_config=ConfigRecord({"lr": 0.2}),
        evaluate_fn=evaluate,
    )


def strategy(**options):
    return SketchStrategy(**{"compression": 10, "codec": "int4", "poll_seconds": 0.01, "round_timeout": 0.2, **options})


def grid(tmp_path, faults=None, clients=parties.CLIENTS):
    return LocalGrid({100 + c: fedavg_app(sketch_mod) for c in range(clients)}, tmp_path / "clients", faults)


def test_a_fedavg_app_learns_through_the_mod_and_only_frames_travel(tmp_path):
    network = grid(tmp_path)
    result = start(strategy(folder=tmp_path / "server"), network, 25)
    assert result.evaluate_metrics_serverapp[25]["accuracy"] > 0.8
    assert all(names == [record.KEY] for names in network.sent)
    rows = [json.loads(line) for line in (tmp_path / "server" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 26))
    assert rows[-1]["bytes_up"] < 4 * (241 / 2 + 120)
    assert rows[-1]["seconds"] >= rows[-1]["seconds_client"]


def test_messages_of_others_pass_the_mod_untouched(tmp_path):
    network = grid(tmp_path)
    content = RecordDict(
        {"arrays": ArrayRecord(net().state_dict()), "config": ConfigRecord({"lr": 0.1, "server-round": 1})}
    )
    message = Message(content, dst_node_id=100, message_type="train")
    reply = network.apps[100](message, network.contexts[100])
    assert set(reply.content) == {"arrays", "metrics"}


def test_silent_failing_and_lying_nodes_do_not_stop_a_round(tmp_path):
    faults = {
        (100, 2): lambda app, m, c: None,
        (101, 2): lambda app, m, c: Message(Error(code=0, reason="killed"), reply_to=m),
        (102, 2): lambda app, m, c: Message(record.content(b"rubbish"), reply_to=m),
        (103, 3): lambda app, m, c: Message(RecordDict(), reply_to=m),
    }
    rows = []
    network = grid(tmp_path, faults)
    start(strategy(on_round=rows.append), network, 4)
    assert [len(row["participants"]) for row in rows] == [4, 1, 3, 4]
    assert rows[1]["silent"] == 1
    assert set(rows[1]["refused"]) == {"client 1", "client 2"}
    assert "killed" in rows[1]["refused"]["client 1"]


def test_a_resumed_run_ends_where_an_undisturbed_one_does(tmp_path):
    whole = start(strategy(folder=tmp_path / "whole"), grid(tmp_path / "a"), 6)
    network = grid(tmp_path / "b")
    start(strategy(folder=tmp_path / "parts"), network, 3)
    renamed = LocalGrid({300 + c: fedavg_app(SketchMod()) for c in range(4)}, tmp_path / "b" / "clients")
    parts = start(strategy(folder=tmp_path / "parts"), renamed, 6)
    for name, array in whole.arrays.items():
        assert (array.numpy() == parts.arrays[name].numpy()).all()


def test_thirty_percent_participation(tmp_path):
    network = grid(tmp_path)
    rows = []
    result = start(strategy(fraction_train=0.3, clients=4, on_round=rows.append), network, 40)
    assert all(len(row["participants"]) == 1 for row in rows)
    assert len({row["participants"] for row in rows}) == 4
    assert result.evaluate_metrics_serverapp[40]["accuracy"] > 0.7


class FixedLedger:
    """A ledger that allows a number of rounds."""

    def __init__(self, rounds):
        self.left, self.charged = rounds, []

    def charge(self, t):
        if not self.left:
            raise BudgetError("spent")
        self.left -= 1
        self.charged.append(t)

    def epsilon(self):
        return float(len(self.charged))

    @property
    def record(self):
        return PrivacyRecord({"unit": "client"}, Ledger("client", "add-remove"), 1e-5)

    def state_dict(self):
        return {"left": self.left, "charged": self.charged}

    def load_state_dict(self, state):
        self.left, self.charged = state["left"], list(state["charged"])


def test_the_budget_ends_a_run_before_its_release_and_survives_a_restart(tmp_path):
    ledger = FixedLedger(3)
    network = grid(tmp_path)
    rows = []
    start(strategy(folder=tmp_path / "s", privacy=Privacy(ledger=ledger), on_round=rows.append), network, 2)
    again = FixedLedger(3)
    start(strategy(folder=tmp_path / "s", privacy=Privacy(ledger=again), on_round=rows.append), network, 9)
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert rows[-1]["epsilon"] == 3.0
    assert again.charged == [1, 2, 3]


def test_arrays_a_sketch_cannot_carry_are_refused(tmp_path):
    arrays = ArrayRecord(nn.BatchNorm1d(3).state_dict())
    with pytest.raises(InputError, match="num_batches_tracked"):
        strategy().start(grid=grid(tmp_path), initial_arrays=arrays, num_rounds=1)


def test_a_round_with_nobody_ends_at_its_deadline(tmp_path):
    rows = []
    start(strategy(on_round=rows.append), LocalGrid({}, tmp_path), 1)
    assert rows[0]["participants"] == ()


def lost(app, message, context):
    """Nothing comes back."""


def test_a_node_that_comes_back_under_a_new_id_takes_part_in_the_open_round(tmp_path):
    network = grid(tmp_path, clients=3)

    def dies_and_returns(app, message, context):
        """Node 101 dies with its order; Flower lists it still.  Its client connects again as node 201."""
        network.join(201, fedavg_app(sketch_mod))

    network.faults = {(101, t): (dies_and_returns if t == 3 else lost) for t in range(3, 7)}
    rows = []
    start(strategy(on_round=rows.append, round_timeout=60.0), network, 5)
    assert [sorted(row["participants"]) for row in rows] == [[0, 1, 2]] * 5
    assert [row["silent"] for row in rows] == [0, 0, 1, 0, 0]  # the dead node is waited for no more


def test_a_client_app_that_crashed_is_asked_again_and_counts_once(tmp_path):
    crashes = iter([True])

    def crash(app, message, context):
        error = Error(code=ErrorCode.CLIENT_APP_CRASHED, reason="crashed")
        return Message(error, reply_to=message) if next(crashes, False) else app(message, context)

    rows = []
    result = start(strategy(on_round=rows.append), grid(tmp_path / "a", {(101, 2): crash}), 4)
    quiet = start(strategy(), grid(tmp_path / "b"), 4)
    assert [len(row["participants"]) for row in rows] == [4] * 4
    assert all((array.numpy() == quiet.arrays[name].numpy()).all() for name, array in result.arrays.items())


def test_a_private_round_is_asked_once(tmp_path):
    """The app would answer a second order, and has perhaps answered the first: what crashed was on its way back."""
    crashes = iter([True])

    def crash(app, message, context):
        error = Error(code=ErrorCode.CLIENT_APP_CRASHED, reason="crashed")
        return Message(error, reply_to=message) if next(crashes, False) else app(message, context)

    rows = []
    private = Privacy(ledger=FixedLedger(3))
    start(strategy(on_round=rows.append, privacy=private), grid(tmp_path, {(101, 2): crash}), 3)
    assert [len(row["participants"]) for row in rows] == [4, 3, 4]


class Clock:
    """Time that passes only in sleep."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds):
        self.now += seconds


def test_nodes_that_stay_away_are_waited_for_once(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("desketch.integrations.flower.strategy.time", clock)
    start(strategy(min_available_nodes=4, round_timeout=50.0, poll_seconds=1.0), grid(tmp_path, clients=3), 4)
    assert clock.now == 50.0
