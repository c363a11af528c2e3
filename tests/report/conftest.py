"""A run folder as training leaves it, and a headless Chromium driven over a pipe (DevTools protocol)."""

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from desketch.tasks import RunConfig

ROUNDS = 40


@pytest.fixture(scope="session")
def full_run(tmp_path_factory):
    """A folder with every optional section: privacy, topology, refusals, captures; not to be changed."""
    tmp_path = tmp_path_factory.mktemp("run")
    config = RunConfig(dp={"mechanism": "sketch-clip", "delta": 1e-5, "clip": 1.0, "epsilon": 4.0}, rounds=ROUNDS)
    config.save(tmp_path / "config.yaml")
    rows = [
        {
            "round": t,
            "loss": 2.3 * np.exp(-t / 15),
            "bytes_up": 1380,
            "bytes_down": 1340,
            "participants": 20,
            "refused": {"3": "scale: <script>alert(1)</script>"} if t == 7 else {},
            "dropped": int(t % 9 == 0),
            "seconds": 0.2,
            "eta_global": 0.2,
            "epsilon": 0.4 * t**0.5,
            "consensus": float(np.exp(-t / 5)),
        }
        | ({"accuracy": 0.96 - 0.85 * np.exp(-t / 9)} if t % 2 == 0 else {})
        for t in range(1, ROUNDS + 1)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {
        "test_accuracy": 0.953,
        "rounds": ROUNDS,
        "bytes_up_per_client": 2760,
        "bytes_down_per_client": 2680,
        "fedavg_bytes_per_client": 2 * 4 * 9610 * ROUNDS,
        "replica_digest": "ab" * 32,
        "seconds": 8.0,
        "epsilon": 2.5,
        "delta": 1e-5,
        "topology": {"name": "ring", "nodes": 20, "edges": [[i, (i + 1) % 20] for i in range(20)]},
        "version": "0.1.0",
        "stopped_by": "budget",
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    claim = {"mechanism": "sketch-clip", "unit": "client", "adjacency": "add-remove", "observer": "everybody"}
    (tmp_path / "privacy.json").write_text(json.dumps({"claim": claim, "ledger": [], "budget": {"epsilon": 4.0}}))
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "round-3.frames").write_bytes(b"frame")
    return tmp_path


class Browser:
    """One page of a headless Chromium; `events` collects what it reported since the page was opened."""

    def __init__(self, program: str, profile: Path) -> None:
        (child_in, self._out), (self._in, child_out) = os.pipe(), os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        # the protocol speaks on descriptors 3 and 4 of the child
        wiring = f'exec "$@" 3<&{child_in} 4>&{child_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", wiring, "sh", program, *options, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(child_in, child_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_in)
        os.close(child_out)
        self._ids, self._buffer, self._session, self.events = itertools.count(1), b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        message = {"id": next(self._ids), "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != message["id"]:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        return [
            e
            for e in self.events
            if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        ]

    def close(self):
        self.call("Browser.close")
        self._process.wait(timeout=30)
        os.close(self._in)
        os.close(self._out)

    def _read(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError(f"Chromium ended with code {self._process.wait(timeout=30)}")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser, installed by the project's own script where there is none; else skips with its reason."""
    script = Path(__file__).with_name("install_chromium.sh")
    installed = subprocess.run([script], capture_output=True, text=True, check=False, timeout=900)
    if installed.returncode != 0:
        pytest.skip(f"no Chromium: {installed.stderr.strip()[-300:]}")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    page = Browser(program, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()
