"""The documentation site: built strictly and offline; in a browser, wide and narrow, nothing breaks or is fetched."""

import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HTML = ROOT / "build" / "site" / "html"
PAGES = [
    "index",
    "tutorial",
    "api",
    "cli",
    "theory",
    "performance",
    "notebooks/first_training",
    "notebooks/transformer",
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    done = subprocess.run([sys.executable, "docs/site.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_clean(browser, site, page, width, scheme):
    forget = "try { localStorage.clear() } catch {}"  # or the last page's choice of colours would be this one's
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=forget)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.open(f"{site}/{page}.html")
    assert [url for url in browser.requests() if not url.startswith((site, "data:", "blob:"))] == []
    assert browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.evaluate("document.querySelector('article h1').textContent.trim().length") > 3
    broken = "[...document.images].filter(i => i.complete && i.naturalWidth === 0).map(i => i.src)"
    assert browser.evaluate(broken) == []
    wanted = {"light": "default", "dark": "slate"}[scheme]
    assert browser.evaluate("document.body.getAttribute('data-md-color-scheme')") == wanted


@pytest.mark.slow
def test_a_link_that_leads_nowhere_is_found(site, tmp_path):
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import links
    finally:
        sys.path.pop(0)
    (tmp_path / "a.html").write_text(
        '<a href="b.html#no">x</a><a href="c.html">y</a><script src="https://x.test/z.js">'
    )
    (tmp_path / "b.html").write_text('<p id="yes">')
    assert links.check(tmp_path) == [
        "a.html: loads https://x.test/z.js",
        "a.html: b.html#no leads nowhere",
        "a.html: c.html leads nowhere",
    ]
    assert links.check(HTML) == []
