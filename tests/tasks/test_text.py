"""Text: windows that tile the file, a transformer that cannot look ahead, and clear words for files that fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from desketch.core.flat import FlatModel
from desketch.errors import ConfigError
from desketch.fed import ClientData, LocalWork, LoopEngine, VmapEngine, make_engine, run
from desketch.privacy.per_example import PerExample
from desketch.tasks import RunConfig, build_model, load_task, partition, prepare
from desketch.tasks.gpt import heads_of

WORDS = ("der ", "Bär ", "läuft ", "über ", "die ", "Brücke.\r\n")


def story(words: int) -> str:
    rng = np.random.default_rng(1)
    return "".join(WORDS[i] for i in rng.integers(0, len(WORDS), words))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "story.txt"
    path.write_bytes(story(800).encode())
    return path


@pytest.mark.parametrize("level", ["char", "byte"])
@pytest.mark.parametrize("context", [1, 16])
def test_windows_tile_the_file_in_order(file, level, context):
    task = load_task(f"text:{file}", level=level, context=context)
    text = story(800)
    symbols = np.array(list(text)) if level == "char" else np.frombuffer(text.encode(), np.uint8)
    known = np.array(list(task.goal.symbols)) if level == "char" else np.arange(256)
    place = 0
    for part, share in (("train", 0.81), ("val", 0.09), ("test", 0.1)):
        x, y = getattr(task, f"x_{part}"), getattr(task, f"y_{part}")
        assert x.shape == y.shape == (len(x), context)
        length = x.numel()
        assert abs(length - share * len(symbols)) <= context + 2
        start = {"train": 0, "val": round(0.81 * len(symbols)), "test": round(0.9 * len(symbols))}[part]
        start += next(s for s in (0, -1, 1) if (known[x.reshape(-1)] == symbols[start + s :][:length]).all())
        assert (known[y.reshape(-1)] == symbols[start + 1 :][:length]).all()
        assert start >= place
        place = start + length + 1
    assert task.outputs == len(known)
    assert place <= len(symbols) + 1


def test_shards_are_contiguous_stretches_and_iid_is_not(file):
    task = load_task(f"text:{file}", context=8)
    parts = partition(task, "shards:1", 5, 0)
    assert all(torch.equal(part, torch.arange(int(part[0]), int(part[0]) + len(part))) for part in parts)
    assert sorted(torch.cat(list(parts)).tolist()) == list(range(len(task.y_train)))
    assert all(int(part.max() - part.min()) > len(part) for part in partition(task, "iid", 5, 0))


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"", {}, "is empty"),
        (b"short", {}, "5 symbols, too few for windows of 64: give at least 1300"),
        (b"a" * 5000, {}, "one character only"),
        (b"\xff\xfe" * 4000, {}, "not UTF-8 text.*level byte"),
        (b"ab" * 5000, {"level": "word"}, "choose char or byte"),
        (b"ab" * 5000, {"context": 0}, "at least 1"),
        (b"ab" * 5000, {"validation": 0.999}, "leaves no training window"),
        (b"ab" * 5000, {"validation": 1.0}, "share of the training set"),
        (b"ab" * 5000, {"goal": "regression"}, "without goal"),
        (b"ab" * 5000, {"label": "x"}, "without label"),
    ],
)
def test_files_that_will_not_do(tmp_path, content, options, words):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_task(f"text:{tmp_path / 'file'}", **options)


def test_missing_files_and_models_that_do_not_fit(tmp_path, file, blobs):
    with pytest.raises(ConfigError, match="cannot read"):
        load_task(f"text:{tmp_path / 'nowhere'}")
    task = load_task(f"text:{file}")
    for spec, words in (("mlp:8", "choose gpt"), ("gpt:2", "layers x width"), ("gpt:0x8", "layers x width")):
        with pytest.raises(ConfigError, match=words):
            build_model(spec, task)
    with pytest.raises(ConfigError, match="does not fit the classification task"):
        build_model("gpt:1x8", blobs)
    assert build_model("gpt:1x8", load_task(f"text:{file}", level="byte"))(task.x_test).shape[-1] == 256


def test_no_place_sees_what_comes_after_it(file):
    task = load_task(f"text:{file}", context=12)
    model = build_model("gpt:2x16", task)
    x = task.x_test[:4]
    changed = x.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % task.outputs
    one, two = model(x), model(changed)
    torch.testing.assert_close(one[:, :7], two[:, :7])
    assert not torch.allclose(one[:, 7:], two[:, 7:])
    torch.testing.assert_close(model(x[:, :5]), one[:, :5])


def test_the_head_is_tied_and_counted_once(file):
    task = load_task(f"text:{file}", context=12)
    model = build_model("gpt:2x16", task)
    block = 2 * 2 * 16 + (16 + 1) * 3 * 16 + (16 + 1) * 16 + (16 + 1) * 64 + (64 + 1) * 16
    assert FlatModel(model, task.goal.loss).d == (task.outputs + 12) * 16 + 2 * block + 2 * 16
    assert model.head.weight is model.embedding.weight
    assert [heads_of(width) for width in (8, 32, 64, 96, 100, 128)] == [1, 1, 2, 3, 2, 4]


def test_engines_and_single_examples_agree_on_a_transformer(file):
    task = load_task(f"text:{file}", context=8)
    model = FlatModel(build_model("gpt:1x8", task), task.goal.loss)
    parts = partition(task, "iid", 3, 0)
    cohort = [ClientData(c, task.x_train[i], task.y_train[i]) for c, i in enumerate(parts)]
    engine = make_engine(model, (task.x_train[:2], task.y_train[:2]))
    assert type(engine) is VmapEngine
    w, work = model.flatten(), LocalWork(steps=3, eta=0.5, batch=8)
    loop = LoopEngine(model).updates(w, cohort, work, t=1)
    torch.testing.assert_close(engine.updates(w, cohort, work, t=1), loop, rtol=1e-4, atol=1e-6)
    x, y = task.x_train[:5], task.y_train[:5]
    single = PerExample(model.module, model.batch_loss).gradients(w, x, y)
    alone = torch.stack([model.gradient(w, x[i : i + 1], y[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(single, alone, rtol=1e-4, atol=1e-6)


def test_a_sketched_federation_learns_to_read(file):
    small = {"model": "gpt:1x8", "context": 8, "clients": 2, "batch_size": 8, "local_steps": 10, "eta_local": 1.0}
    wire = {"compression": 3, "codec": "int4", "average": 4, "evaluate_every": 16}
    config = RunConfig(task=f"text:{file}", partition="shards:1", **small, **wire)
    setup = prepare(config)
    frequency = np.bincount(setup.task.y_train.numpy().reshape(-1), minlength=setup.task.outputs)
    share = frequency / frequency.sum()
    unigram = np.exp(-(share[share > 0] * np.log(share[share > 0])).sum())
    federation = setup.federation()
    before = setup.evaluate(federation.model_vector)["perplexity"]
    assert before == pytest.approx(setup.task.outputs, rel=0.1)
    run(federation, rounds=16)
    assert setup.evaluate(federation.model_vector)["perplexity"] < 0.6 * unigram
