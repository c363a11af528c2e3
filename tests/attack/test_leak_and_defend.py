"""The story in its small form: a sketch alone is rebuilt, a private one is not."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "leak_and_defend.py"


def test_the_story(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    leaked, defended = main(["--rounds", "1", "--fraction", "0.02", "--out", str(tmp_path)])
    assert leaked.attempt.success
    assert leaked.epsilon is None
    assert not defended.attempt.success
    assert defended.attempt.quality.psnr < 20
    assert 0 < defended.epsilon <= 8
    assert "RECOVERED" in capsys.readouterr().out
    assert (tmp_path / "private" / "attack.png").stat().st_size > 0
