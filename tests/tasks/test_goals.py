"""Goals: metrics against scikit-learn's, however the examples are batched, and engines that agree on their losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle
from torch import nn

from desketch.core.flat import FlatModel
from desketch.core.metrics import METRICS, primary
from desketch.errors import ConfigError
from desketch.fed import ClientData, LocalWork, LoopEngine, MlpEngine, VmapEngine, make_engine
from desketch.privacy.per_example import PerExample
from desketch.tasks import build_model, partition, task_from_arrays
from desketch.tasks.goals import Classification, Language, MultiLabel, Regression
from desketch.tasks.labels import choose_goal

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 4))
PRICES = 1e4 + 300 * X @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=300)
ANSWERS = (X @ RNG.normal(size=(4, 3)) > 0.4).astype(int)


def linear(task):
    torch.manual_seed(3)
    return FlatModel(nn.Linear(4, task.outputs), task.goal.loss)


def judge(task, model):
    outputs = model.predict(model.flatten(), task.x_test).detach().numpy()
    return task.goal.evaluate(model, model.flatten(), task.x_test, task.y_test), outputs


def test_accuracy():
    task = task_from_arrays(X, ANSWERS @ [1, 2, 4])
    scores, outputs = judge(task, linear(task))
    assert scores["accuracy"] == pytest.approx(oracle.accuracy_score(task.y_test, outputs.argmax(1)))
    assert set(scores) == {"loss", "accuracy"}


def test_rmse_is_in_the_labels_own_units():
    task = task_from_arrays(X, PRICES)
    assert isinstance(task.goal, Regression)
    torch.testing.assert_close(task.y_train.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(task.y_train.std(correction=0), torch.tensor(1.0), atol=1e-5, rtol=0)
    scores, outputs = judge(task, linear(task))
    said, true = (task.goal.mean + task.goal.std * v for v in (outputs[:, 0], task.y_test.numpy()))
    assert np.abs(true[:, None] - PRICES).min(1).max() < 0.01
    assert scores["rmse"] == pytest.approx(oracle.root_mean_squared_error(true, said), rel=1e-4)
    assert scores["r2"] == pytest.approx(oracle.r2_score(true, said), rel=1e-4)
    assert scores["loss"] == pytest.approx((scores["rmse"] / task.goal.std) ** 2, rel=1e-5)


def test_f1_is_micro_averaged_and_subset_accuracy_wants_every_answer():
    task = task_from_arrays(X, ANSWERS)
    assert task.goal == MultiLabel(3)
    scores, outputs = judge(task, linear(task))
    assert scores["f1"] == pytest.approx(oracle.f1_score(task.y_test, outputs > 0, average="micro"))
    assert scores["subset_accuracy"] == pytest.approx(oracle.accuracy_score(task.y_test, outputs > 0))
    nothing = MultiLabel(2)
    assert nothing.score(0.0, nothing.tally(-torch.ones(3, 2), torch.zeros(3, 2)))["f1"] == 1.0


def test_perplexity_of_a_model_that_knows_nothing_is_the_number_of_symbols():
    goal = Language(17)
    model = FlatModel(nn.Sequential(nn.Embedding(17, 17)), goal.loss)
    x = torch.randint(17, (9, 5), generator=torch.Generator().manual_seed(0))
    scores = goal.evaluate(model, torch.zeros(model.d), x, x)
    assert scores["loss"] == pytest.approx(math.log(17), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(17, rel=1e-5)
    assert goal.score(1e9, torch.zeros(0))["perplexity"] < math.inf


@pytest.mark.parametrize("labels", [ANSWERS @ [1, 2, 4], PRICES, ANSWERS], ids=["classes", "numbers", "answers"])
def test_metrics_do_not_depend_on_the_batches(labels, monkeypatch):
    task = task_from_arrays(X, labels)
    model = linear(task)
    whole, _ = judge(task, model)
    monkeypatch.setattr(type(task.goal), "batch", 7)
    parts, _ = judge(task, model)
    assert parts == pytest.approx(whole, rel=1e-5)
    assert primary(whole) is task.goal.metric


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(ANSWERS @ [1, 2, 4], MlpEngine), (PRICES, VmapEngine), (ANSWERS, VmapEngine)],
    ids=["classes", "numbers", "answers"],
)
def test_the_batched_engines_minimise_the_goals_own_loss(labels, kind):
    task = task_from_arrays(X, labels)
    model = FlatModel(build_model("mlp:6", task), task.goal.loss)
    parts = partition(task, "dirichlet:1.0", 3, 0)
    cohort = [ClientData(c, task.x_train[i], task.y_train[i]) for c, i in enumerate(parts)]
    engine = make_engine(model, (task.x_train[:2], task.y_train[:2]))
    assert type(engine) is kind
    w, work = model.flatten(), LocalWork(steps=3, eta=0.1, batch=8)
    loop = LoopEngine(model).updates(w, cohort, work, t=1)
    torch.testing.assert_close(engine.updates(w, cohort, work, t=1), loop, rtol=1e-4, atol=1e-6)
    single = PerExample(model.module, model.batch_loss).gradients(w, task.x_train[:5], task.y_train[:5])
    torch.testing.assert_close(single.mean(0), model.gradient(w, task.x_train[:5], task.y_train[:5]))


def test_numbers_and_answers_are_dealt_out_unevenly_too():
    numbers = task_from_arrays(X, PRICES)
    means = sorted(float(numbers.y_train[part].mean()) for part in partition(numbers, "shards:1", 4, 0))
    assert means[0] < -1 < 1 < means[-1]
    answers = task_from_arrays(X, ANSWERS)
    for part in partition(answers, "shards:1", 8, 0):
        assert len(torch.unique(answers.y_train[part], dim=0)) <= 4
    for task in (numbers, answers):
        parts = partition(task, "dirichlet:0.5", 6, 0)
        assert sorted(torch.cat(list(parts)).tolist()) == list(range(len(task.y_train)))


@pytest.mark.parametrize(
    ("y", "goal", "expected"),
    [
        (np.arange(20) % 3, None, Classification(3)),
        (np.arange(20) % 3 + 0.0, None, Classification(3)),
        (np.arange(20) % 3 + 0.5, "classification", Classification(3)),
        (np.arange(20) % 3 + 0.5, None, Regression),
        (np.arange(20), "regression", Regression),
        (np.eye(20, 2, dtype=bool), None, MultiLabel(2)),
    ],
)
def test_the_goal_follows_from_the_labels_unless_given(y, goal, expected):
    found = task_from_arrays(np.zeros((20, 1)), y, goal=goal).goal
    assert isinstance(found, Regression) if expected is Regression else found == expected


@pytest.mark.parametrize(
    ("y", "goal", "words"),
    [
        (np.eye(20, 2) * 0.5, None, "0 or 1, got 0.5"),
        (np.eye(20, 2), "regression", "one label, got 2"),
        (np.arange(20) % 2, "multilabel", "several label columns"),
        (np.where(np.arange(20) == 3, np.nan, 0.5), None, "not a number"),
        (np.where(np.arange(20) == 3, np.nan, 0.5), "regression", "not a number"),
        (np.full(20, 0.5), None, "in every training row"),
        (np.array(["a", "b"] * 10), "regression", "numeric label, got '[ab]'"),
        (np.arange(20) % 2, "ranking", "unknown goal"),
        (np.zeros((20, 2, 2)), None, r"\(n, labels\)"),
    ],
)
def test_labels_that_fit_no_goal_are_refused(y, goal, words):
    with pytest.raises(ConfigError, match=words):
        task_from_arrays(np.zeros((20, 1)), y, goal=goal)


def test_only_classification_has_classes():
    with pytest.raises(ConfigError, match="regression task, it has no classes"):
        _ = task_from_arrays(X, PRICES).classes
    assert METRICS["rmse"].reached(2.0, 3.0)
    assert not METRICS["accuracy"].reached(0.2, 0.3)


def test_a_quantity_written_in_whole_numbers_is_not_silently_a_class():
    prices = np.arange(1000, 1200)
    with pytest.warns(UserWarning, match="200 different whole numbers in 200 rows"):
        assert choose_goal("houses", prices, None) == "classification"
    assert choose_goal("houses", prices, "regression") == "regression"
