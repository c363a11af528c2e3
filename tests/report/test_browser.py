"""The report in a real browser: no complaint, nothing fetched, every plot visible, in light and in dark."""

import base64

import pytest

from desketch.report import write_report

PLOTS = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const inked = [...svg.querySelectorAll('path, use, text')].filter(e => {
    const b = e.getBoundingClientRect();
    return b.width + b.height > 0 && getComputedStyle(e).visibility === 'visible';
  });
  return {name: svg.getAttribute('aria-label'), width: box.width, height: box.height, ink: inked.length,
          overflow: box.right > document.documentElement.clientWidth + 1};
})"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_the_report_opens_clean_and_every_plot_is_visible(browser, full_run, scheme, width):
    report = write_report(full_run)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(report.as_uri())
    plots = browser.evaluate(PLOTS)
    assert len(plots) == 8
    for plot in plots:
        assert plot["width"] > 250, plot
        assert plot["height"] > 100, plot
        assert plot["ink"] > 20, plot
        assert not plot["overflow"], plot
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [report.as_uri()]
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    picture = base64.b64decode(browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])
    assert len(picture) > 10_000
