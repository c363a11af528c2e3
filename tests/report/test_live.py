"""The live report: fresh at every request, for this machine's browser alone, and it updates itself in a real one."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
from contextlib import contextmanager

import pytest

from desketch.report.live import LiveReport


@contextmanager
def served(folder):
    server = LiveReport(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(server, path="/", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def add_row(folder, **row):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"bytes_up": 1, "bytes_down": 1, "participants": 2, "refused": {}, **row}) + "\n")


def test_the_page_follows_the_run_from_before_its_first_round(tmp_path):
    with served(tmp_path) as server:
        assert "waiting for the first round" in get(server)[1]
        add_row(tmp_path, round=1, accuracy=0.5, seconds=0.1)
        assert "1 rounds" in get(server, "/main")[1]
        add_row(tmp_path, round=2, accuracy=0.75, seconds=0.1)
        status, page = get(server)
        assert status == 200
        assert "2 rounds" in page
        assert "<script>alert" not in page


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [("/", None, 200), ("/", "localhost:80", 200), ("/", "evil.example:80", 403), ("/main", "evil.example", 403),
     ("/../etc/passwd", None, 404)],
)  # fmt: skip
def test_only_this_machine_s_browser_is_answered(full_run, path, host, status):
    with served(full_run) as server:
        assert get(server, path, host)[0] == status


@pytest.mark.slow
def test_the_browser_shows_new_rounds_without_a_reload(browser, full_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(full_run, folder)
    (folder / "summary.json").unlink()
    with served(folder) as server:
        browser.open(server.url)
        browser.evaluate("window.kept = 1")
        add_row(folder, round=41, accuracy=0.9, seconds=0.1)
        deadline = time.monotonic() + 60
        while "41 rounds" not in browser.evaluate("document.body.innerText") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "41 rounds" in browser.evaluate("document.body.innerText")
        assert browser.evaluate("window.kept") == 1
        assert browser.complaints() == []
