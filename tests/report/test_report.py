"""The report: one self-contained page from what the run wrote, tolerant of what a run may lack."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from desketch.core.files import sealed_json
from desketch.core.rows import write_rows
from desketch.core.units import human_bytes
from desketch.errors import RunError
from desketch.report import Series, line_figure, read_run, render_report, to_svg, write_report
from desketch.tasks import RunConfig


@pytest.fixture(scope="module")
def html(full_run):
    return render_report(full_run)


def titles(html):
    return re.findall(r"<h2>(.*?)</h2>", html)


def test_every_section_of_a_full_run(html):
    assert titles(html) == [
        "Progress",
        "Privacy",
        "Topology",
        "Absent and refused",
        "Captured frames",
        "Configuration",
        "Versions",
    ]
    for text in (
        "95.30 %",
        "2.76 kB",
        "565x",
        "dirichlet:0.5, srht d/b = 30, sign1 up",
        "ab" * 32,
        "capture/round-3.frames",
        "budget.epsilon",
        "add-remove",
    ):
        assert text in html


def test_nothing_is_fetched_and_foreign_text_is_escaped(html):
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    links = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert "default-src 'none'" in html


def test_a_run_without_a_metric_has_no_empty_plots(tmp_path):
    rows = [{"round": t, "bytes_up": 9, "bytes_down": 9, "participants": 2, "eta_global": 0.1 * t} for t in (1, 2, 3)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    page = render_report(tmp_path)
    assert "No metric is recorded yet" in page
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["Server step"]


def test_ids_are_unique_and_references_resolve(html):
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)


def test_tags_are_balanced(html):
    class Balance(HTMLParser):
        void = frozenset({"meta", "link", "br"})

        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag not in self.void:
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balance()
    parser.feed(html)
    assert parser.open == []


def test_is_a_pure_function_of_the_folder(full_run, html):
    assert write_report(full_run).read_text() == html
    assert not list(full_run.glob("*.tmp"))


def test_a_bare_interrupted_run_still_has_a_report(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5}\n{"round": 2, "accur')
    html = render_report(tmp_path)
    assert titles(html) == ["Progress", "Versions"]
    assert "interrupted" in html
    assert html.count("<figure>") == 3


def test_a_run_marked_not_private_says_so(tmp_path):
    (tmp_path / "config.yaml").write_text("dp: {not_private_seed: 1}")
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}')
    assert "NOT PRIVATE" in render_report(tmp_path)


def test_damaged_folders_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"no metrics\.jsonl"):
        render_report(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="no finished round"):
        render_report(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"round"\n')
    with pytest.raises(RunError, match="line 1"):
        render_report(tmp_path)


def test_a_damaged_row_is_left_out_and_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"round"\n{"round": 2}\n')
    assert [row["round"] for row in read_run(tmp_path).rows] == [2]
    assert "line 1 cannot be read" in render_report(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "summary.json"])
def test_a_file_that_is_not_what_was_sealed_is_named(tmp_path, name):
    write_rows(tmp_path / "metrics.jsonl", [{"round": 1}])
    RunConfig(rounds=3).save(tmp_path / "config.yaml")
    (tmp_path / "summary.json").write_bytes(sealed_json({"rounds": 3}, indent=2))
    assert read_run(tmp_path).summary == {"rounds": 3}
    path = tmp_path / name
    path.write_text(path.read_text().replace("rounds: 3", "rounds: 4").replace('"rounds": 3', '"rounds": 4'))
    with pytest.raises(RunError, match=f"{name} is damaged"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "privacy.json"])
@pytest.mark.parametrize("text", ["[1, 2", "[1, 2]"])
def test_damaged_files_are_named(tmp_path, name, text):
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}')
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=name):
        render_report(tmp_path)


def test_bytes_and_seconds_add_up(tmp_path):
    rows = [{"round": t, "bytes_up": 600, "bytes_down": 400, "participants": 2, "seconds": 3.0} for t in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.yaml").write_text("clients: 10\n")
    run = read_run(tmp_path)
    np.testing.assert_allclose(run.bytes_per_client(), [100, 200])
    # 1.5 s of work a client, then 500 bytes at 1 kbit/s
    np.testing.assert_allclose(run.seconds_on_link(1000), [1.5 + 4, 2 * (1.5 + 4)])


def test_plots_take_the_pages_colours_and_skip_gaps():
    x, y = np.arange(3.0), np.array([1.0, np.nan, 2.0])
    svg = to_svg(line_figure([Series(label="<b>", x=x, y=y)], xlabel="x", ylabel="y"), prefix="p")
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>")
    assert "currentColor" in svg
    assert "#010203" not in svg


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5e12, "5 TB")])
def test_human_bytes(count, text):
    assert human_bytes(count) == text
