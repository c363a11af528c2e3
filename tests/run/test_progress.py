"""What is said of rounds in a pipe, and of refused updates."""

from desketch.fed.rounds import RoundRecord
from desketch.run.progress import Progress, refusals


def record(t):
    return RoundRecord(
        round=t, metrics={"accuracy": 0.5} if t == 2 else {}, bytes_up=500, bytes_down=500, asked=1, participants=1,
        refused={}, dropped=0, late=0, eta_global=1.0, digest="", seconds=0.0,
    )  # fmt: skip


def test_a_pipe_gets_lines_while_the_rounds_go_on(capsys):
    with Progress(3, done=1, show=True) as bar:
        for t in (2, 3):
            bar.on_round(record(t))
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert f"round {t}/3, accuracy 0.5, {t - 1} kB on the wire" in said
            assert ("left)" in said) == (t == 2)


def test_nothing_is_said_where_no_progress_is_wanted(capsys):
    with Progress(1, show=False) as bar:
        bar.on_round(record(1))
    assert capsys.readouterr().err == ""


def test_refusals_take_a_line_a_kind_and_name_a_few_clients():
    refused = {c: f"norm: got {c}, an update has at most 0" for c in range(5)} | {7: "update: not finite", 8: "scale"}
    assert refusals(refused) == [
        "clients 0, 1, 2 and 2 more refused (norm: got 0, an update has at most 0)",
        "client 7 refused (update: not finite)",
        "client 8 refused (scale)",
    ]
    assert refusals({}) == []
