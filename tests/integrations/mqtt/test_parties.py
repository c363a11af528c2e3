"""Clients and carrier over a real broker: who gets what, how often, and who is kept out."""

import threading

import pytest
from fault_proxy import FaultProxy
from mqtt_bed import CLIENTS, SETTINGS, Broker, Counted, Threads, gather, serve, setup, wait_for_nodes
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from desketch.errors import RunError
from desketch.fed import Attendance, run
from desketch.integrations.mqtt import link as links
from desketch.integrations.mqtt.address import Address, tls_context
from desketch.integrations.mqtt.client import LastAnswer, MqttClient
from desketch.integrations.mqtt.credentials import make_credentials
from desketch.integrations.mqtt.inbox import Message
from desketch.integrations.mqtt.link import Link
from desketch.integrations.mqtt.stamp import Stamps


class Recorded(Attendance):
    """Those whom the server says it heard."""

    def __init__(self, heard):
        object.__setattr__(self, "heard", heard)

    def cohort(self, t, clients):
        return list(self.heard[t])

    def fates(self, t, cohort):
        return dict.fromkeys(cohort, "ok")


def in_process(rounds, heard=None):
    federation = setup().federation()
    if heard is not None:
        federation.attendance = Recorded(heard)
    run(federation, rounds=rounds)
    return federation.digest()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_secure_run_is_the_in_process_run_to_the_bit(secure_broker, qos):
    parties = [Counted(client) for client in range(CLIENTS)]
    clients = [secure_broker.client(n, party.answer, qos=qos) for n, party in enumerate(parties)]
    with Threads(*clients) as threads, secure_broker.carrier(qos=qos) as carrier:
        rows, session = serve(carrier, rounds=3)
        carrier.close(over=True)
        threads.join()  # they end by themselves: the run is over
        assert all(client.over for client in clients)
    assert threads.failures == []
    assert [row["clients"] for row in rows] == [[0, 1, 2]] * 3
    assert session.digest() == in_process(3)
    assert {party.session.replica.digest() for party in parties} == {session.digest()}


def test_orders_for_everybody_leave_once(broker):
    got = []
    clients = [broker.client(n, lambda order: got.append(order) or order) for n in range(CLIENTS)]
    with Threads(*clients), broker.carrier() as carrier:
        wait_for_nodes(carrier, CLIENTS)
        topics, publish = [], carrier.link.publish
        carrier.link.publish = lambda topic, *args, **kw: topics.append(topic) or publish(topic, *args, **kw)
        for node in range(CLIENTS):
            carrier.send(node, b"same", carrier.now() + 20)
        assert sorted(arrival.node for arrival in gather(carrier, CLIENTS)) == [0, 1, 2]
        assert topics == ["d/o"]
        for node in range(2):  # not for all who are there: each gets its own
            carrier.send(node, b"some", carrier.now() + 20)
        assert sorted(arrival.node for arrival in gather(carrier, 2)) == [0, 1]
        assert topics[1:] == ["d/0/o", "d/1/o"]


def test_a_repeated_order_gets_the_same_bytes_and_costs_no_work(broker, tmp_path):
    worked = []

    def answer(order):
        worked.append(order)
        return bytes([len(worked)])

    for _ in range(2):  # the second time in another life of the client
        with Threads(broker.client(0, answer, folder=tmp_path / "client")), broker.carrier() as carrier:
            wait_for_nodes(carrier, 1)
            for _ in range(2):
                carrier.send(0, b"order", carrier.now() + 20)
                assert [arrival.data for arrival in gather(carrier, 1)] == [b"\x01"]
    assert worked == [b"order"]


@pytest.mark.parametrize("when", ["before the reply left", "after"])
def test_an_order_that_is_repeated_after_its_reply_left_is_answered_again(when):
    """The reply may have been lost: what came before it left asked for it, what comes later asks again."""
    client = MqttClient(Address(host="127.0.0.1", port=1, tls=False), 0, lambda order: repeat("before") or b"reply")
    stamps, sent = Stamps(), []

    def repeat(at):
        if when.startswith(at) and not client._last.given(b"order"):
            client._receive([Message("d/0/o", stamps.next() + b"order")])

    def publish(topic, data):
        sent.append(data)
        if when == "after" and len(sent) == 1:
            client._receive([Message("d/0/o", stamps.next() + b"order")])
        return True

    client.link.publish = publish
    client._receive([Message("d/0/o", stamps.next() + b"order")])
    for _ in range(2):
        waiting, client._waiting = client._waiting, None
        if waiting is not None:
            client._serve(waiting)
    assert sent == [b"reply"] * (1 if when.startswith("before") else 2)


def test_the_broker_confirms_what_a_party_leaves_behind(broker):
    """It is not only written to a socket that is then closed."""
    asked, confirmed = [], []
    with Threads(broker.client(0, bytes)), broker.carrier() as carrier:
        wait_for_nodes(carrier, 1)
        mqtt = carrier.link._client
        publish = mqtt.publish
        mqtt.publish = lambda *message, **how: asked.append(how["qos"]) or publish(*message, **how)
        mqtt.on_publish = lambda client, data, mid, reason, properties: confirmed.append(reason.value)
    assert (asked, confirmed) == ([1], [0])


def test_a_damaged_answer_is_no_answer(tmp_path):
    LastAnswer(tmp_path).keep(b"order", b"reply")
    assert LastAnswer(tmp_path).given(b"order") == b"reply"
    assert LastAnswer(tmp_path).given(b"another") is None
    path = tmp_path / "answer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert LastAnswer(tmp_path).given(b"order") is None


def test_only_the_newest_of_waiting_orders_counts_and_late_ones_are_dropped(broker):
    hold, seen = threading.Event(), []

    def answer(order):
        seen.append(order)
        hold.wait(20)
        return b"to " + order

    stamps = Stamps()
    late = stamps.next()
    with Threads(broker.client(0, answer)), broker.carrier() as carrier:
        wait_for_nodes(carrier, 1)
        carrier._stamps = stamps
        carrier.send(0, b"1", carrier.now() + 20)
        carrier.arrivals(0)
        while not seen:
            carrier.arrivals(0.05)
        for order in (b"2", b"3"):
            carrier.send(0, order, carrier.now() + 20)
            carrier.arrivals(0.1)
        carrier.link.publish("d/0/o", late + b"0")
        carrier.link.publish("d/0/o", b"abc")  # no stamp, no order
        hold.set()
        assert [arrival.data for arrival in gather(carrier, 2)] == [b"to 1", b"to 3"]
        carrier.send(0, b"4", carrier.now() + 20)
        assert [arrival.data for arrival in gather(carrier, 1)] == [b"to 4"]
    assert seen == [b"1", b"3", b"4"]


def test_what_was_lost_with_a_connection_is_sent_again(broker):
    parties = [Counted(client) for client in range(CLIENTS)]
    with FaultProxy(broker.port) as proxy:
        cut_at = {2: [0, 1], 3: [2]}  # rounds in which these clients lose their connection while they work

        def answer(party, client):
            def wrapped(order):
                reply = party.answer(order)
                t = len([1 for _, r in party.worked if r])
                if client in cut_at.get(t, []):
                    cut_at[t].remove(client)
                    proxy.cut()
                return reply

            return wrapped

        clients = [broker.client(n, answer(party, n), port=proxy.port) for n, party in enumerate(parties)]
        with Threads(*clients) as threads, broker.carrier() as carrier:
            rows, session = serve(carrier, rounds=4)
    assert threads.failures == []
    assert not any(cut_at.values())
    assert [row["clients"] for row in rows] == [[0, 1, 2]] * 4
    assert session.digest() == in_process(4)


def test_messages_lost_twice_late_and_out_of_order_change_nothing(broker):
    parties = [Counted(client) for client in range(CLIENTS)]
    with FaultProxy(broker.port, lost=0.1, twice=0.3, delayed=0.3, longest=0.4, seed=4) as proxy:
        clients = [broker.client(n, party.answer, port=proxy.port) for n, party in enumerate(parties)]
        with Threads(*clients) as threads, broker.carrier() as carrier:
            rows, session = serve(carrier, rounds=8, repeat_after=1.0)
        assert all(proxy.done[what] for what in ("lost", "twice", "delayed"))
    assert threads.failures == []
    assert [row["clients"] for row in rows] == [[0, 1, 2]] * 8
    assert not any(row["refused"] for row in rows)
    assert session.digest() == in_process(8)
    for party in parties:  # every order was worked on once
        orders = [order for order, _ in party.worked]
        assert len(set(orders)) == len(orders)


def test_a_silence_longer_than_the_keepalive_and_the_round(broker, monkeypatch):
    monkeypatch.setitem(SETTINGS, "client_momentum", 0.0)  # a mean would hold the update whose reply is not heard
    parties = [Counted(client) for client in range(CLIENTS)]
    with FaultProxy(broker.port) as proxy:
        silent, tick = threading.Event(), threading.Event()

        def answer(order):
            reply = parties[2].answer(order)
            if len(parties[2].worked) == 2:
                proxy.silence()
                silent.set()
            return reply

        clients = [broker.client(n, parties[n].answer) for n in range(2)]
        clients.append(broker.client(2, answer, port=proxy.port, keepalive=1))
        with Threads(*clients) as threads, broker.carrier() as carrier:

            def speak_when_it_is_missed():
                silent.wait(20)
                while 2 in carrier.nodes():  # until the broker notices, one and a half times the keep-alive
                    tick.wait(0.05)
                proxy.speak()

            watch = threading.Thread(target=speak_when_it_is_missed, daemon=True)
            watch.start()
            rows, session = serve(carrier, rounds=4, seconds=1.5)
            watch.join(20)
    assert threads.failures == []
    assert rows[1]["clients"] == [0, 1]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert session.digest() == in_process(4, {t: row["clients"] for t, row in enumerate(rows, 1)})


@pytest.mark.parametrize("qos", [0, 1])
def test_a_link_that_loses_its_connection_all_the_time_is_no_duel(broker, monkeypatch, qos):
    monkeypatch.setattr(links, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(links, "_DUELS", 3)
    cuts = []
    with FaultProxy(broker.port) as proxy:

        def answer(order):
            cuts.append(proxy.cut())
            return order

        with Threads(broker.client(0, answer, port=proxy.port, qos=qos)) as threads, broker.carrier(qos=qos) as carrier:
            wait_for_nodes(carrier, 1)
            for t in range(6):
                carrier.send(0, bytes([t]), carrier.now() + 20)
                came = []
                while bytes([t]) not in came and not threads.failures:  # at QoS 1 earlier ones may come twice
                    came += [arrival.data for arrival in gather(carrier, 1, seconds=5.0)]
    assert threads.failures == []
    assert len(cuts) == 6


def test_a_broker_that_dies_and_forgets_everything_costs_no_round(broker):
    parties = [Counted(client) for client in range(CLIENTS)]
    killed = threading.Event()

    def answer(party):
        def wrapped(order):
            reply = party.answer(order)
            if len(party.worked) == 2 and not killed.is_set():
                killed.set()
                broker.stop("broker", 9)
                broker.start_again()
            return reply

        return wrapped

    clients = [broker.client(n, answer(party) if n == 0 else party.answer) for n, party in enumerate(parties)]
    with Threads(*clients) as threads, broker.carrier() as carrier:
        rows, session = serve(carrier, rounds=3)
    assert killed.is_set()
    assert threads.failures == []
    assert [row["clients"] for row in rows] == [[0, 1, 2]] * 3
    assert session.digest() == in_process(3)


class Outsider:
    """Any MQTT client: what it gets, and whether the broker let it in."""

    def __init__(self, broker, credentials, name):
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5)
        self.got, self.granted, self.up = [], [], threading.Event()
        if broker.secure:
            self.client.tls_set_context(tls_context(credentials, broker.address()))
        self.client.on_message = lambda c, d, message: self.got.append((message.topic, message.payload))
        self.client.on_connect = lambda *_: self.up.set()
        self.client.on_subscribe = lambda c, d, mid, reasons, p: self.granted.extend(reasons)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        assert self.up.wait(20)

    def __enter__(self):
        return self.client, self.got

    def __exit__(self, *_):
        self.client.disconnect()
        self.client.loop_stop()


def test_a_client_reads_and_writes_its_own_topics_only(secure_broker):
    with secure_broker.carrier() as carrier:
        with (
            Threads(secure_broker.client(0, lambda order: b"mine")),
            Outsider(secure_broker, secure_broker.credentials(1), "1") as (client, got),
        ):
            client.subscribe([("d/0/o", 0), ("d/+/o", 0), ("d/+/r", 0), ("#", 0), ("d/1/o", 0)])
            wait_for_nodes(carrier, 1)
            client.publish("d/0/r", b"forged")  # another's reply
            client.publish("d/0/p", b"", retain=True)  # another's last will
            client.publish("d/0/o", b"\0\0\0\0order")  # the server's word
            client.publish("d/o", b"\0\0\0\0order")
            client.publish("d/1/r", b"own")
            assert [(a.node, a.data) for a in gather(carrier, 1)] == [(1, b"own")]
            carrier.send(0, b"order", carrier.now() + 20)
            assert [(a.node, a.data) for a in gather(carrier, 1)] == [(0, b"mine")]
            assert carrier.nodes() == [0]
            carrier.send(1, b"for one", carrier.now() + 20)
            while not got:
                carrier.arrivals(0.05)
        assert {(topic, payload[4:]) for topic, payload in got} == {("d/1/o", b"for one")}


def test_nobody_takes_anothers_place_by_its_name(secure_broker):
    with Threads(secure_broker.client(0, lambda order: b"mine")) as threads, secure_broker.carrier() as carrier:
        wait_for_nodes(carrier, 1)
        with Outsider(secure_broker, secure_broker.credentials(1), "0"):  # client 1, claiming client 0's MQTT name
            carrier.send(0, b"order", carrier.now() + 20)
            assert [(a.node, a.data) for a in gather(carrier, 1)] == [(0, b"mine")]
    assert threads.failures == []


def test_of_two_processes_with_one_name_one_gives_up(secure_broker, monkeypatch):
    monkeypatch.setattr(links, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(links, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(links, "_DUELS", 4)
    one, two = (secure_broker.client(0, lambda order: order) for _ in range(2))
    with Threads(one) as first, Threads(two) as second, secure_broker.carrier() as carrier:
        while not (first.failures or second.failures):
            carrier.arrivals(0.1)
        (failure,) = first.failures or second.failures
        assert isinstance(failure, RunError)
        assert "take its place" in str(failure)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves such a socket to Python
def test_a_foreign_certificate_is_refused_both_ways(secure_broker, tmp_path):
    make_credentials(tmp_path / "foreign", "127.0.0.1", 1)
    address = secure_broker.address()
    with pytest.raises(RunError, match="not the broker of these credentials"):
        Link(address, name="0", credentials=tmp_path / "foreign" / "client-0").open()
    mixed = tmp_path / "mixed"  # knows the broker, but is not known to it
    mixed.mkdir()
    for file in ("cert.pem", "key.pem"):
        (mixed / file).write_bytes((tmp_path / "foreign" / "client-0" / file).read_bytes())
    (mixed / "ca.pem").write_bytes((secure_broker.keys / "client-0" / "ca.pem").read_bytes())
    with pytest.raises(RunError, match="refused the certificate"):
        Link(address, name="0", credentials=mixed).open()


def test_no_broker_is_said_after_the_patience():
    from desketch.integrations.mqtt.address import Address
    from desketch.integrations.processes import free_port

    with pytest.raises(RunError, match=r"no broker answers at mqtt://127.0.0.1.*is it running"):
        Link(Address.parse(f"mqtt://127.0.0.1:{free_port()}"), name="0").open(patience=0.2)


def test_a_broker_that_is_not_there_yet_is_said_once_and_the_wait_ends_when_told(caplog):
    from desketch.integrations.mqtt.address import Address
    from desketch.integrations.processes import free_port

    url = f"mqtt://127.0.0.1:{free_port()}"
    link = Link(Address.parse(url), name="0")
    looks = []  # what was said by each of them

    def stop():
        looks.append([record.message for record in caplog.records if record.name == "desketch"])
        return len(looks) > 20 and bool(looks[-20])

    assert link.open(stop=stop) is False
    link.close()
    (line,) = looks[-1]
    assert line.startswith(f"no connection to the broker at {url} yet ([Errno 111] Connection refused); trying again")


def test_a_gone_client_is_no_longer_there(broker):
    with broker.carrier() as carrier:
        with Threads(broker.client(1, lambda order: order)):
            wait_for_nodes(carrier, 1)
            assert carrier.nodes() == [1]
        wait_for_nodes(carrier, 0)
        link = Link(broker.address(), name="dies", will="d/2/p")
        link.open()
        link.publish("d/2/p", b"1", retain=True)
        wait_for_nodes(carrier, 1)
        link._socket().shutdown(2)  # no goodbye: the broker publishes its last will
        wait_for_nodes(carrier, 0)
        link.close()


def test_the_broker_of_a_secure_plan_says_where_it_writes(tmp_path, mosquitto):
    with Broker(tmp_path, secure=True) as made:
        text = made.configuration.read_text()
        assert "require_certificate true" in text
        assert "allow_anonymous false" in text
        assert "persistence true" in text
        assert made.configuration.stat().st_mode & 0o077 == 0
