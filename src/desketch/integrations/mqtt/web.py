"""A browser tab as a client: the page, its examples and its way to the broker, served on loopback.

The page (``page.html``, built from clients/js) does what every client does: it trains on its own examples, here the
share that the configuration deals to it, and speaks MQTT to the broker's WebSocket listener.  One key, the fragment of
the page's address, lets a tab in at both: this server asks for it before it deals examples, the broker takes it as the
password.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from desketch.errors import InputError
from desketch.integrations.mqtt.address import ROOT
from desketch.integrations.mqtt.broker import Tab
from desketch.tasks.config import RunConfig
from desketch.tasks.federation import Setup, prepare
from desketch.tasks.goals import Classification

__all__ = ["PageServer", "check_page", "page_server"]

KEEPALIVE = 30  # seconds: a tab that was closed is missed soon
_MODELS = re.compile(r"softmax|mlp(-tanh)?:\d+(-\d+)*")
_FAMILIES = ("srht", "countsketch")


def check_page(config: RunConfig) -> None:
    """Refuse what the page cannot train, before anything is started."""
    reason = None
    if not _MODELS.fullmatch(config.model):
        reason = f"it trains softmax, mlp:H and mlp-tanh:H, not {config.model}"
    elif config.wire.family not in _FAMILIES or config.wire.options.get("transform") == "fourier":
        reason = f"it draws {' and '.join(_FAMILIES)}, without the Fourier transform, not {config.wire.family}"
    elif config.dp is not None:
        reason = "it keeps no ledger, so it takes no part in a private run"
    elif config.topology is not None:
        reason = "it needs a server"
    if reason is not None:
        raise InputError(f"a browser tab cannot be a client of this run: {reason}")


class PageServer(ThreadingHTTPServer):
    """``http://127.0.0.1:PORT/#KEY``, one tab's; `opened` is set once a tab with the right key has come."""

    daemon_threads = True

    def __init__(self, setup: Setup, tab: Tab, port: int = 0) -> None:
        check_page(setup.config)
        self.tab, self.opened = tab, threading.Event()
        self._facts = json.dumps(_facts(setup, tab)).encode()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """What to open; the key stands in it."""
        return f"http://127.0.0.1:{self.server_port}/#{self.tab.key}"

    def page(self) -> bytes:
        """The page, which may speak to this server and to the broker and to nobody else."""
        text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'nonce-{nonce}'; "
            f"connect-src 'self' ws://127.0.0.1:{self.tab.port}"
        )
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><link rel="icon" href="data:,">'
        text = text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{meta}', 1)
        return text.replace('<script type="module">', f'<script type="module" nonce="{nonce}">', 1).encode()

    def facts(self, authorization: str) -> bytes | None:
        """What the tab needs to take part, for whoever shows the key."""
        if not hmac.compare_digest(authorization.encode(), f"Bearer {self.tab.key}".encode()):
            return None
        self.opened.set()
        return self._facts


@contextmanager
def page_server(config: RunConfig, tab: Tab) -> Iterator[PageServer]:
    """A page server in a thread, for as long as the block."""
    server = PageServer(prepare(config), tab)
    thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _facts(setup: Setup, tab: Tab) -> dict[str, Any]:
    config, mine = setup.config, setup.clients[tab.client]
    if not isinstance(setup.task.goal, Classification):
        raise InputError(f"a browser tab cannot be a client of this run: it learns classes, not {config.task}")
    x, y = mine.x.reshape(len(mine.y), -1).float().contiguous().cpu(), mine.y.to(torch.uint8).cpu()
    *_, (classes,) = setup.model.shapes
    return {
        "client": tab.client,
        "clients": config.clients,
        "rounds": config.rounds,
        "broker": {
            "url": f"ws://127.0.0.1:{tab.port}/",
            "name": f"{ROOT}/{tab.client}",
            "user": str(tab.client),
            "root": ROOT,
            "keepalive": KEEPALIVE,
        },
        "model": config.model,
        "inputs": x.shape[1],
        "classes": classes,
        "weight": mine.weight,
        "work": {"steps": config.local_steps, "eta": config.eta_local, "batch": config.batch_size},
        "x": base64.b64encode(x.numpy().astype("<f4").tobytes()).decode(),
        "y": base64.b64encode(y.numpy().tobytes()).decode(),
    }


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """Answer / and /client; a page of another site that resolves to this address is refused."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost"):
            self._answer(403, b"this address is for the browser of this machine")
        elif self.path == "/":
            self._answer(200, self.server.page(), "text/html; charset=utf-8")
        elif self.path == "/client":
            facts = self.server.facts(self.headers.get("Authorization") or "")
            self._answer(200 if facts else 403, facts or b"{}", "application/json")
        else:
            self._answer(404, b"there is / alone")

    def _answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No line a request: the terminal belongs to the user."""
