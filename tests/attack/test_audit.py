"""The audit: verdicts in the four cases, Wilson intervals, the document's shape, curves, and the defence."""

import json
import math
from dataclasses import replace

import pytest
import torch

from desketch.attack.audit import VERDICTS, audit, wilson
from desketch.attack.curves import phase_diagram, psnr_over_rounds
from desketch.attack.defence import epsilon_of, needed_noise
from desketch.attack.noise import ObservedNoise
from desketch.attack.quality import psnr
from desketch.attack.scenario import Data, Scenario
from desketch.attack.wiretap import codec_noise, through_the_wire
from desketch.errors import InputError
from desketch.keys import Key


@pytest.fixture(scope="module")
def scenario(world):
    pictures, labels = world.x.reshape(-1, 1, 8, 8), world.y
    data = Data(pictures[:100], labels[:100], pictures[100:], labels[100:], 10)
    return Scenario(data=data, build=lambda seed: world.update(seed=seed).model, family="countsketch", b=75)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, VERDICTS[0]),
        ({"b": 24}, VERDICTS[3]),
        ({"noise": ObservedNoise(before=0.02)}, VERDICTS[2]),
        ({"codec": "int4"}, VERDICTS[2]),
    ],
)
def test_verdicts(scenario, change, verdict):
    found = audit(replace(scenario, **change), seeds=1, restarts=1)
    assert found.verdict == verdict
    assert found.as_dict()["identifiable"] is (verdict != VERDICTS[3])


def test_a_failed_optimiser_is_no_safety(scenario):
    found = audit(scenario, seeds=1, solvers=("gd",), restarts=1)
    assert found.verdict == VERDICTS[1]


def test_document_is_json_and_complete(scenario):
    document = json.loads(json.dumps(audit(scenario, seeds=2, delta=1e-5).as_dict()))
    asked = {"verdict", "unknowns", "measurements", "sigma_min", "success_rate", "wilson", "psnr_median", "psnr_bound"}
    assert asked | {"seconds", "threat_model", "defence", "rounds_to_identify", "box_probability"} <= document.keys()
    assert document["unknowns"] == 64
    assert document["measurements"] == 75
    assert document["labels_recovered"] == 1.0
    assert document["defence"]["epsilon"] > 0


def test_wilson_interval():
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    low, high = wilson(5, 10)
    assert low + high == pytest.approx(1.0)
    assert wilson(0, 10)[0] == 0.0


def test_needed_noise_gives_the_ceiling(scenario):
    target, prior = scenario.target(0), scenario.prior()
    std = needed_noise(target, prior, 20.0)
    noisy = replace(scenario, noise=ObservedNoise(before=std), codec=None).target(0)
    from desketch.attack.bounds import bayesian_at

    assert psnr(bayesian_at(noisy.objective, noisy.truth, prior)) == pytest.approx(20.0, abs=0.01)
    assert needed_noise(target, prior, 5.0) is None


def test_epsilon_counts_rounds_steps_and_batch(scenario):
    once = epsilon_of(scenario, 1.0, clip=1.0, delta=1e-5)
    assert epsilon_of(replace(scenario, rounds=4), 2.0, clip=1.0, delta=1e-5) == pytest.approx(once, rel=1e-2)
    assert epsilon_of(replace(scenario, batch=2), 0.5, clip=1.0, delta=1e-5) == pytest.approx(once, rel=1e-6)
    unrolled = replace(scenario, K=4, eta_local=0.5)
    assert epsilon_of(unrolled, 2.0, clip=1.0, delta=1e-5) == pytest.approx(once, rel=1e-2)


def test_phase_diagram_falls_with_noise_and_rises_with_measurements(scenario):
    cells = phase_diagram(scenario, ratios=(0.5, 1.2), noises=(0.0, 0.05))
    value = {(c.b, c.relative_noise): c.psnr_bound for c in cells}
    assert value[77, 0.0] > value[77, 0.05]
    assert value[77, 0.0] > value[32, 0.0]
    assert json.dumps([c.as_dict() for c in cells])


def test_rounds_add_up(scenario):
    cells = psnr_over_rounds(replace(scenario, b=30))
    assert [c.rounds for c in cells] == [1, 2, 3]
    assert cells[-1].psnr_attack > 40 > cells[0].psnr_attack


@pytest.mark.parametrize(
    ("codec", "worst"), [("f32", 1e-7), ("f16", 1e-3), ("int8", 0.03), ("int4", 0.4), ("sign1", 1.0)]
)
def test_codec_noise_is_what_the_wire_adds(codec, worst):
    s = torch.randn(512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    std = codec_noise(s, family="srht", d=4096, codec=codec)
    seen = through_the_wire(s, family="srht", d=4096, codec=codec, key=Key(1))
    assert 0 < std < worst
    assert float((seen - s).square().mean().sqrt()) == pytest.approx(std, rel=0.3)


def test_impossible_scenarios_are_refused(scenario):
    with pytest.raises(InputError, match="rounds"):
        replace(scenario, rounds=0)
    with pytest.raises(InputError, match="private examples"):
        replace(scenario, batch=101)
    assert math.isfinite(scenario.target(1).gradient_norm)


def test_raw_updates_can_be_audited_too(scenario):
    raw = replace(scenario, family="none", b=None)
    target = raw.target(0)
    assert target.objective.observations[0].R is None
    assert target.objective.measurements == target.objective.update.d
    found = audit(raw, seeds=1)
    assert found.verdict == VERDICTS[0]
    assert "raw" in found.threat_model["sees"]
    cells = phase_diagram(raw, ratios=(0.5, 1.2), noises=(0.0, 0.05))
    assert [c.compression for c in cells] == [1.0, 1.0]
    assert cells[0].psnr_bound > cells[1].psnr_bound
    with pytest.raises(InputError, match="leave b out"):
        replace(scenario, family="none")
