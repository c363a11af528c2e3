"""``desketch report``: the page from a folder, one clear message otherwise."""

import subprocess
import sys


def desketch_report(folder):
    command = [sys.executable, "-m", "desketch", "report", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_report_command(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5, "bytes_up": 10, "bytes_down": 10}\n')
    done = desketch_report(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_folder_without_a_run_is_refused(tmp_path):
    done = desketch_report(tmp_path)
    assert done.returncode == 2
    assert "no metrics.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
