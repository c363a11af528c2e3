"""What is said of rounds in a pipe, and of refused updates."""

import torch

import desketch as ds
from desketch.api.configured import train_run
from desketch.core.rows import read_rows
from desketch.core.units import human_bytes
from desketch.fed.rounds import RoundRecord
from desketch.run.progress import Progress, refusals
from desketch.tasks import RunConfig


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


def test_the_bytes_of_rounds_before_a_resumption_count(capsys):
    rows = [{"round": 1, "bytes_up": 4000, "bytes_down": 3000}, {"round": 2}]  # a row may say nothing of bytes
    with Progress(3, done=2, rows=rows, show=True) as bar:
        bar.on_round(record(3))
    assert "8 kB on the wire" in capsys.readouterr().err


def total(folder):
    return human_bytes(sum(row["bytes_up"] + row["bytes_down"] for row in read_rows(folder / "metrics.jsonl").rows))


def test_a_resumed_configured_run_counts_all_its_bytes(capsys, tmp_path):
    for rounds in (3, 4):
        config = RunConfig(model="softmax", clients=3, local_steps=1, rounds=rounds)
        train_run(config, out=tmp_path, resume=rounds == 4, progress=True)
    assert f"{total(tmp_path)} on the wire" in capsys.readouterr().err.splitlines()[-1]


def test_a_resumed_run_of_a_program_counts_all_its_bytes(capsys, tmp_path):
    x, y = torch.ones(8, 3), torch.ones(8, 1)
    for rounds in (3, 4):
        torch.manual_seed(0)
        ds.federate(
            torch.nn.Linear(3, 1),
            [ds.Client(x, y), ds.Client(x, y)],
            loss=torch.nn.functional.mse_loss,
            rounds=rounds,
            wire=ds.Wire(compression=1, codec="f32"),
            out=tmp_path,
            resume=rounds == 4,
            progress=True,
        )
    assert f"{total(tmp_path)} on the wire" in capsys.readouterr().err.splitlines()[-1]


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
