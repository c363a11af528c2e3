"""The report of a run that goes on, served on loopback: the same page, whose body is fetched again as rounds end.

Nothing but this machine's browser can read it: the server listens on 127.0.0.1 and answers only requests that name it.
"""

from __future__ import annotations

import re
import secrets
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from desketch.errors import RunError
from desketch.report.page import render_report

__all__ = ["LiveReport"]

_SECONDS = 2
_MAIN = re.compile(r"<main>(.*)</main>", re.DOTALL)
_SCRIPT = """
const main = document.querySelector("main");
setInterval(async () => {
  try {
    const answer = await fetch("/main", {cache: "no-store"});
    const body = await answer.text();
    document.body.classList.toggle("stale", !answer.ok);
    if (answer.ok && body !== main.dataset.last) { main.innerHTML = body; main.dataset.last = body; }
  } catch { document.body.classList.add("stale"); }
}, %d);
"""
_STYLE = "body.stale::before{content:'not updating: desketch watch has stopped';display:block;padding:.5em 1em;}"


class LiveReport(ThreadingHTTPServer):
    """``http://127.0.0.1:PORT/`` shows a run folder's report as it is now; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://127.0.0.1:{self.server_port}/"

    def main(self) -> str:
        """The inside of the page: the report, or why there is none yet."""
        try:
            found = _MAIN.search(render_report(self.folder))
        except RunError as error:
            begun = (self.folder / "metrics.jsonl").is_file()
            why = str(error) if begun else f"No round has ended in {self.folder} yet; this page shows it when one has."
            return f"<h1>waiting for the first round</h1><p>{escape(why)}</p>"
        return found[1] if found else ""

    def page(self) -> str:
        """The whole page, with the few lines that keep it fresh."""
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
            f"script-src 'nonce-{nonce}'"
        )
        style = Path(__file__).with_name("style.css").read_text(encoding="utf-8") + _STYLE
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
            f"<title>desketch watch</title><style>{style}</style></head>\n"
            f'<body><main>{self.main()}</main><script nonce="{nonce}">{_SCRIPT % (1000 * _SECONDS)}</script>'
            "</body></html>\n"
        )


class _Handler(BaseHTTPRequestHandler):
    server: LiveReport

    def do_GET(self) -> None:
        """Answer / and /main; a page of another site that resolves to this address is refused."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        makers = {"/": self.server.page, "/main": self.server.main}
        if host not in ("127.0.0.1", "localhost"):
            self._answer(403, "this address is for the browser of this machine")
        elif self.path not in makers:
            self._answer(404, "there is / alone")
        else:
            self._answer(200, makers[self.path]())

    def _answer(self, code: int, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No line a request: the terminal belongs to the user."""
