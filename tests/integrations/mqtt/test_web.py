"""The page's server: its examples go to whoever has the key, and it says what a tab cannot train."""

from __future__ import annotations

import base64
import http.client
import json

import numpy as np
import pytest

pytest.importorskip("paho.mqtt")

from desketch.errors import InputError
from desketch.integrations.mqtt.broker import Tab
from desketch.integrations.mqtt.web import check_page, page_server
from desketch.tasks import RunConfig, prepare

CONFIG = RunConfig(task="digits", model="softmax", clients=3, rounds=5, weighting="uniform")


@pytest.fixture(scope="module")
def server():
    with page_server(CONFIG, Tab(2)) as made:
        yield made


def get(server, path, **headers):
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        link.request("GET", path, headers=headers)
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def test_examples_go_to_whoever_has_the_key_and_to_nobody_else(server):
    key = server.tab.key
    for wrong in ({}, {"Authorization": f"Bearer {key[:-1]}"}, {"Authorization": key}, {"Authorization": "Bearer é"}):
        assert get(server, "/client", **wrong) == (403, b"{}")
    assert not server.opened.is_set()
    status, body = get(server, "/client", Authorization=f"Bearer {key}")
    facts, mine = json.loads(body), prepare(CONFIG).clients[2]
    assert (status, facts["client"], facts["weight"], facts["classes"], facts["inputs"]) == (200, 2, 1.0, 10, 64)
    x = np.frombuffer(base64.b64decode(facts["x"]), "<f4").reshape(-1, 64)
    assert np.array_equal(x, mine.x.reshape(-1, 64).numpy())
    assert list(base64.b64decode(facts["y"])) == mine.y.tolist()
    assert server.opened.is_set()


def test_the_page_may_speak_to_its_broker_only_and_holds_no_key(server):
    status, body = get(server, "/")
    page = body.decode()
    assert status == 200
    assert f"connect-src 'self' ws://127.0.0.1:{server.tab.port}\"" in page
    assert server.tab.key not in page
    assert server.url.endswith(f"/#{server.tab.key}")
    assert get(server, "/elsewhere")[0] == 404


def test_a_name_that_leads_here_is_refused(server):
    assert get(server, "/", Host="evil.test:80")[0] == 403
    assert get(server, "/client", Host="evil.test:80", Authorization=f"Bearer {server.tab.key}")[0] == 403


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "cnn"}, "not cnn"),
        ({"family": "gaussian"}, "not gaussian"),
        ({"family_options": {"transform": "fourier"}}, "without the Fourier transform"),
        ({"dp": {"mechanism": "sketch-clip", "delta": 1e-5, "clip": 1.0, "epsilon": 4.0}}, "keeps no ledger"),
    ],
)
def test_what_a_tab_cannot_train_is_refused_before_anything_starts(changes, words):
    with pytest.raises(InputError, match=words):
        check_page(RunConfig(**{"clients": 3, "model": "softmax", **changes}))


def test_a_key_is_not_shown_nor_stored():
    tab = Tab(2)
    assert tab.key not in repr(tab)
    assert tab.key not in tab.password_line
    assert tab.password_line.startswith("2:$7$101$")
