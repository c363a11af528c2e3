"""SketchStrategy and sketch_mod on Flower's own classes: a grid in this process, an app written for plain FedAvg."""

from __future__ import annotations

import json
from inspect import signature

import numpy as np
import parties
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg
from local_grid import LocalGrid
from torch import nn

from desketch.core.tree import unpack_tree
from desketch.errors import BudgetError, ConfigError, InputError, PrivacyError, RunError
from desketch.fed.mechanism import Privacy
from desketch.fed.replica import digest
from desketch.fed.rounds import Observer
from desketch.integrations.flower import SketchMod, SketchStrategy, record, sketch_mod
from desketch.privacy.accountants import epsilon
from desketch.privacy.events import EVERYBODY, Gaussian, Ledger
from desketch.privacy.record import PrivacyRecord
from desketch.privacy.run import RunLedger
from desketch.session.store import FolderStore
from desketch.wire import Wire


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def fedavg_app(*mods):
    """What a Flower user has: a ClientApp for FedAvg.  One argument makes it send sketches."""
    app = ClientApp(mods=list(mods))

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
        metrics = MetricRecord({"num-examples": len(data.y), "client": context.node_config["partition-id"]})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        model = net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = parties.client_data(context.node_config["partition-id"])
        right = float((model(data.x).argmax(1) == data.y).float().mean())
        metrics = MetricRecord({"num-examples": len(data.y), "accuracy": right, **extra(message)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def extra(message):
    config = message.content["config"]
    return {"server-round": config["server-round"], "seen": config["seen"]} if "seen" in config else {}


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
    wire = Wire(compression=10, codec="int4")
    quick = {"fraction_evaluate": 0.0, "poll_seconds": 0.01, "round_timeout": 0.2}
    return SketchStrategy(**{"wire": wire, **quick, **options})


def grid(tmp_path, faults=None, clients=parties.CLIENTS):
    return LocalGrid({100 + c: fedavg_app(sketch_mod) for c in range(clients)}, tmp_path / "clients", faults)


def test_a_fedavg_app_learns_through_the_mod_and_only_frames_travel(tmp_path):
    network = grid(tmp_path)
    result = start(strategy(folder=tmp_path / "server"), network, 25)
    assert result.evaluate_metrics_serverapp[25]["accuracy"] > 0.8
    rows = [json.loads(line) for line in (tmp_path / "server" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 26))
    assert rows[-2]["bytes_up"] < 4 * (241 / 2 + 120 + len('{"num-examples":350,"client":1}'))
    assert rows[-1]["seconds"] >= rows[-1]["seconds_client"]


def other_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.mark.parametrize(
    ("make", "sent"),
    [(net, False), (lambda: ArrayRecord(net().state_dict()), False), (other_net, True), (None, True)],
)
def test_a_client_that_makes_the_first_model_is_not_sent_it(tmp_path, make, sent):
    calls = []
    mod = SketchMod(w0=make and (lambda: calls.append(1) or make()))
    network = LocalGrid({100 + c: fedavg_app(mod) for c in range(2)}, tmp_path / "clients")
    start(strategy(folder=tmp_path / "server"), network, 3)
    reference = grid(tmp_path / "b", clients=2)
    start(strategy(folder=tmp_path / "reference"), reference, 3)
    assert state(tmp_path / "server") == state(tmp_path / "reference")
    weights = 4 * sum(p.numel() for p in net().parameters())
    assert (max(len(order) for order in network.sent) > weights) is sent
    assert len(calls) <= 4  # at first contact, and once more where that was in vain


def state(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["digest"] for row in rows]


def test_a_first_model_of_another_shape_is_named(tmp_path):
    mod = SketchMod(w0=lambda: nn.Linear(3, 2))
    rows = []
    network = LocalGrid({100: fedavg_app(mod), 101: fedavg_app(sketch_mod)}, tmp_path / "clients")
    start(strategy(on_round=rows.append), network, 1)
    assert "use one model on both sides" in str(rows[0]["refused"])
    assert rows[0]["participants"] == 1


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
    assert [row["participants"] for row in rows] == [4, 1, 3, 4]
    assert rows[1]["dropped"] == 1
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
    result = start(strategy(fraction_train=0.3, min_train_nodes=1, clients=4, on_round=rows.append), network, 40)
    assert all(row["participants"] == 1 for row in rows)
    assert {client for row in rows for client in row["clients"]} == {0, 1, 2, 3}
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


def priced_ledger():
    """Three rounds fit into its budget, a fourth does not."""
    cost = Gaussian(20.0)
    budget = epsilon(Ledger("client").plus(cost, count=3), 1e-5) * 1.001
    claim = {"adjacency": "add-remove"}
    return RunLedger(lambda t: {EVERYBODY: cost}, claim=claim, unit="client", delta=1e-5, budget=budget)


class StopAfter(Observer):
    def __init__(self, rounds):
        self.rounds = rounds

    def on_round(self, record):
        self.stop = record.round >= self.rounds


def test_the_budget_ends_a_run_before_its_release_and_survives_a_restart(tmp_path):
    network, rows = grid(tmp_path), []
    for ledger, stop in ((priced_ledger(), 2), (last := priced_ledger(), 9)):
        private = {"privacy": Privacy(ledger=ledger), "observer": StopAfter(stop)}
        start(strategy(folder=tmp_path / "s", on_round=rows.append, **private), network, 9)
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert dict(last.record.ledger.spent[EVERYBODY]) == {Gaussian(20.0): 3}


def test_a_private_run_through_the_mod_is_held_to_its_rounds_by_every_client(tmp_path):
    network, rows = grid(tmp_path), []
    private = strategy(folder=tmp_path / "s", on_round=rows.append, privacy=Privacy(ledger=FixedLedger(9)))
    start(private, network, 2)
    assert [row["participants"] for row in rows] == [4, 4]
    ledgers = [FolderStore(folder).load_ledger() for folder in sorted((tmp_path / "clients").iterdir())]
    assert [(ledger.serial, list(ledger.rounds.values())) for ledger in ledgers] == [(2, [2])] * 4
    # neither more rounds, nor a run without privacy, nor Flower's own messages get anything out of them
    with pytest.raises(RunError, match="another agreement"):
        start(strategy(name="more", on_round=rows.append, privacy=Privacy(ledger=FixedLedger(9))), network, 1)
    with pytest.raises(RunError, match="without privacy"):
        start(strategy(name="plain", on_round=rows.append), network, 1)
    assert [row["participants"] for row in rows[2:]] == [0, 0]
    content = RecordDict({"arrays": ArrayRecord(net().state_dict()), "config": ConfigRecord({"lr": 0.1})})
    with pytest.raises(PrivacyError, match="without privacy"):
        network.apps[100](Message(content, dst_node_id=100, message_type="train"), network.contexts[100])


def test_arrays_a_sketch_cannot_carry_are_refused(tmp_path):
    arrays = ArrayRecord(nn.BatchNorm1d(3).state_dict())
    with pytest.raises(InputError, match="num_batches_tracked"):
        strategy().start(grid=grid(tmp_path), initial_arrays=arrays, num_rounds=1)


def test_a_round_with_nobody_ends_at_its_deadline(tmp_path):
    rows = []
    start(strategy(on_round=rows.append), LocalGrid({}, tmp_path), 1)
    assert rows[0]["participants"] == 0


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
    assert [row["clients"] for row in rows] == [[0, 1, 2]] * 5
    assert [row["dropped"] for row in rows] == [0, 0, 1, 0, 0]  # the dead node is waited for no more


def test_a_client_app_that_crashed_is_asked_again_and_counts_once(tmp_path):
    crashes = iter([True])

    def crash(app, message, context):
        error = Error(code=ErrorCode.CLIENT_APP_CRASHED, reason="crashed")
        return Message(error, reply_to=message) if next(crashes, False) else app(message, context)

    rows = []
    result = start(strategy(on_round=rows.append), grid(tmp_path / "a", {(101, 2): crash}), 4)
    quiet = start(strategy(), grid(tmp_path / "b"), 4)
    assert [row["participants"] for row in rows] == [4] * 4
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
    assert [row["participants"] for row in rows] == [4, 3, 4]


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
    monkeypatch.setattr("desketch.integrations.flower.carrier.time", clock)
    start(strategy(min_available_nodes=4, round_timeout=50.0, poll_seconds=1.0), grid(tmp_path, clients=3), 4)
    assert clock.now == 50.0


def test_it_takes_the_arguments_of_fedavg_with_its_defaults():
    def named(function):
        return {name: p.default for name, p in signature(function).parameters.items() if name != "self"}

    theirs, ours = named(FedAvg.__init__), named(SketchStrategy.__init__)
    assert list(ours)[: len(theirs)] == list(theirs)  # so that positional calls mean the same
    assert {name: ours[name] for name in theirs} == theirs
    assert list(signature(SketchStrategy.start).parameters) == list(signature(FedAvg.start).parameters)


def test_clients_evaluate_the_model_of_the_round_and_the_model_is_not_sent(tmp_path):
    network, rows = grid(tmp_path), []
    result = strategy(fraction_evaluate=1.0, on_round=rows.append).start(
        grid=network,
        initial_arrays=ArrayRecord(net().state_dict()),
        num_rounds=3,
        train_config=ConfigRecord({"lr": 0.2}),
        evaluate_config=ConfigRecord({"seen": 7}),
    )
    model = net()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    data = [parties.client_data(c) for c in range(4)]
    right = sum(int((model(d.x).argmax(1) == d.y).sum()) for d in data) / sum(len(d.y) for d in data)
    last = result.evaluate_metrics_clientapp[3]
    assert last["accuracy"] == pytest.approx(right)
    assert (last["server-round"], last["seen"]) == (3, 7)
    assert "num-examples" not in last
    assert rows[-1]["evaluate_metrics"] == dict(last)
    first, later = network.sent[: 2 * 4], network.sent[2 * 4 :]  # who has no w0 is sent it once
    assert sum(len(order) > 4 * 2410 for order in first) == 4
    assert max(map(len, later)) < 500


def test_a_sample_of_the_nodes_evaluates_and_metrics_go_through_the_users_functions(tmp_path):
    asked = []

    def gathered(records, key):
        asked.append(sorted(next(iter(r.metric_records.values()))["client"] for r in records))
        return MetricRecord({"clients": len(records), "key": int(key == "num-examples")})

    def counted(records, key):
        return MetricRecord({"evaluated": len(records)})

    functions = {"train_metrics_aggr_fn": gathered, "evaluate_metrics_aggr_fn": counted}
    result = start(
        strategy(fraction_train=0.5, fraction_evaluate=0.25, min_evaluate_nodes=1, **functions), grid(tmp_path), 6
    )
    assert [dict(m) for m in result.train_metrics_clientapp.values()] == [{"clients": 2, "key": 1}] * 6
    assert [dict(m) for m in result.evaluate_metrics_clientapp.values()] == [{"evaluated": 1}] * 6
    assert len({tuple(names) for names in asked}) > 1


def test_failed_evaluations_and_bad_metrics_cost_only_the_metrics(tmp_path):
    def swapped(value):
        def fault(app, message, context):
            reply = app(message, context)
            if message.metadata.message_type == "evaluate":
                reply.content.config_records[record.KEY]["m"] = value
            return reply

        return fault

    def fails(app, message, context):
        if message.metadata.message_type == "evaluate":
            return Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason="no"), reply_to=message)
        return app(message, context)

    big = json.dumps({"num-examples": 1, "accuracy": [0.5] * 9000}).encode()
    faults = {(100, 1): swapped(b"["), (101, 1): swapped(big), (102, 1): fails, (103, 2): swapped(b'{"other":1}')}
    faults |= {(100 + c, 3): swapped(b'{"num-examples":0,"accuracy":1.0}') for c in range(4)}
    rows = []
    result = start(strategy(fraction_evaluate=1.0, on_round=rows.append), grid(tmp_path, faults), 4)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 4]  # one client was left in round 1, nobody's agreed in 2
    assert [row["participants"] for row in rows] == [4] * 4
    assert not any(row["refused"] for row in rows)


def test_an_app_without_an_evaluate_function_still_trains(tmp_path):
    app = fedavg_app(sketch_mod)
    del app._registered_funcs["evaluate.default"]
    rows = []
    network = LocalGrid({100: app, 101: app}, tmp_path / "clients")
    result = start(strategy(fraction_evaluate=1.0, on_round=rows.append), network, 2)
    assert [row["participants"] for row in rows] == [2, 2]
    assert not result.evaluate_metrics_clientapp


def test_metrics_that_are_too_large_are_refused_by_name(tmp_path):
    def bloated(message, context, call_next):
        reply = call_next(message, context)
        reply.content["metrics"]["history"] = [0.5] * 9000
        return reply

    rows = []
    apps = {100: fedavg_app(sketch_mod, bloated), 101: fedavg_app(sketch_mod)}
    start(strategy(on_round=rows.append), LocalGrid(apps, tmp_path / "clients"), 1)
    assert rows[0]["clients"] == [1]
    assert "at most 16384 travel" in rows[0]["refused"]["client 0"]


def test_a_private_run_neither_evaluates_on_clients_nor_lets_metrics_travel(tmp_path):
    network = grid(tmp_path)
    beside = []
    network.faults = {(100 + c, 1): lambda app, m, x: beside.append(reply := app(m, x)) or reply for c in range(4)}
    private = strategy(fraction_evaluate=1.0, privacy=Privacy(ledger=FixedLedger(1)))
    result = start(private, network, 1)
    assert not result.train_metrics_clientapp
    assert not result.evaluate_metrics_clientapp
    assert beside
    assert all(record.size(reply) == 0 for reply in beside)


def test_other_names_of_records_reach_the_app(tmp_path):
    app, seen = ClientApp(mods=[sketch_mod]), []

    @app.train()
    def train(message, context):
        seen.append((set(message.content), dict(message.content["settings"])))
        metrics = MetricRecord({"rows": 5})
        return Message(RecordDict({"model": message.content["model"], "m": metrics}), reply_to=message)

    named = strategy(arrayrecord_key="model", configrecord_key="settings", weighted_by_key="rows")
    start(named, LocalGrid({100: app, 101: app}, tmp_path / "clients"), 1)
    assert seen == [({"model", "settings"}, {"lr": 0.2, "server-round": 1})] * 2


def test_without_training_clients_still_evaluate(tmp_path):
    result = start(strategy(fraction_train=0.0, fraction_evaluate=1.0), grid(tmp_path), 2)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2]
    before = ArrayRecord(net().state_dict())
    assert all((array.numpy() == before[name].numpy()).all() for name, array in result.arrays.items())


def replicas(folder, clients=4):
    return {digest(unpack_tree(unpack_tree(read(folder, c))["replica"])["w"]) for c in range(clients)}


def read(folder, client):
    return (folder / "clients" / str(client) / "replica.safetensors").read_bytes()


@pytest.mark.parametrize("ending", ["rounds", "budget", "stop"])
def test_live_replicas_end_with_the_last_broadcast_however_a_run_ends(tmp_path, ending):
    watch = Observer()
    rows = []

    def on_round(row):
        rows.append(row)
        watch.stop = ending == "stop" and row["round"] == 2

    options = {"fraction_train": 0.5, "on_round": on_round, "observer": watch}
    options |= {"privacy": Privacy(ledger=FixedLedger(2))} if ending == "budget" else {}
    run = strategy(**options)
    start(run, grid(tmp_path), 2 if ending == "rounds" else 9)
    assert len(rows) == 2
    assert replicas(tmp_path) == {run.session.digest()} == {rows[-1]["digest"]}
    assert run.session.spent_budget == (ending == "budget")


def test_a_rule_and_sizes_reach_the_session_or_are_refused():
    strategy = SketchStrategy(robust="trimmed-mean:beta=0.1", sizes={0: 30.0})
    arrays = ArrayRecord({"w": Array(np.zeros(40, dtype=np.float32))})
    strategy._open(arrays, ConfigRecord(), ConfigRecord(), 3)
    aggregator = strategy.session.server.replica.channel.aggregator
    assert (aggregator.rule.spec, aggregator.sizes) == ("trimmed-mean:beta=0.1", {0: 30.0})
    with pytest.raises(ConfigError, match="sgd has no momentum"):
        SketchStrategy(optimizer="sgd", beta=0.2)
    with pytest.raises(ConfigError, match="expected one of none"):
        SketchStrategy(robust="median")
    with pytest.raises(InputError, match="a session has its own rule"):
        SketchStrategy(session=strategy.session, robust="rfa")
