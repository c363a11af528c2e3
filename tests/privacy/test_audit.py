import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from desketch.cli.app import cli
from desketch.errors import InputError
from desketch.keys import Key
from desketch.privacy.audit import AuditResult, audit_scores, gaussian_epsilon, one_run_bound
from desketch.privacy.mechanisms import Mechanism, NoisySteps, SketchClipClients, SketchClipExamples
from desketch.privacy.noise import Entropy, SeededNoiseNotPrivate
from desketch.verify.mechanisms import SCENES, Scene, audit_scene, per_example

DRAWS = 400
Z = 0.5  # little noise, so that few draws tell much
D = Scene.d
ENTROPY = SeededNoiseNotPrivate(20)  # one stream for all draws: fixed, yet fresh at every draw


def build(kind: tuple[str, str], entropy: Entropy, mechanism: type[Any] | None = None) -> Mechanism:
    if kind == ("sketch-clip", "client"):
        return (mechanism or SketchClipClients)(
            clip=1.0, noise_multiplier=Z, sampling_rate=1.0, clients=3, entropy=entropy
        )
    shipped = SketchClipExamples if kind[0] == "sketch-clip" else NoisySteps
    return (mechanism or shipped)(clip=1.0, noise_multiplier=Z, batch=2, per_example=per_example(D), entropy=entropy)


def attack(kind: tuple[str, str], make: Callable[[int], Mechanism], *, replay: bool = False) -> AuditResult:
    """Return what one adversary achieves; audit_scene runs both."""
    scene = SCENES[kind][0](make=make)
    worlds = [scene.scores(DRAWS, present=present, replay=replay) for present in (True, False)]
    claimed = gaussian_epsilon(1 / Z, 1e-5)
    return audit_scores(*worlds, claimed_epsilon=claimed, delta=1e-5, confidence=0.999, adversary="test")


@pytest.mark.parametrize("kind", SCENES)
def test_the_shipped_mechanism_passes_and_the_bound_is_not_empty(kind: tuple[str, str]) -> None:
    result = attack(kind, lambda t: build(kind, ENTROPY))
    assert not result.violation
    assert result.lower_bound > 0.25 * result.claimed_epsilon


def test_both_adversaries_attack() -> None:
    kind = ("sketch-clip", "client")
    scene = SCENES[kind][0](make=lambda t: build(kind, ENTROPY))
    results = audit_scene(scene, draws=150, delta=1e-5, confidence=0.999)
    assert [result.violation for result in results] == [False, False]
    assert results[0].claimed_epsilon == pytest.approx(gaussian_epsilon(1 / Z, 1e-5), rel=1e-3)


class Halved(SeededNoiseNotPrivate):
    def normal(self, *shape: int, std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return super().normal(*shape, std=std / 2, dtype=dtype)

    def discrete_normal(self, *shape: int, s: int) -> Tensor:
        return super().discrete_normal(*shape, s=s // 2)


@pytest.mark.parametrize("kind", SCENES)
def test_halved_noise_is_caught(kind: tuple[str, str]) -> None:
    entropy = Halved(21)
    assert attack(kind, lambda t: build(kind, entropy)).violation


class UnclippedClients(SketchClipClients):
    def guard(self, sketches: Tensor) -> Tensor:
        return sketches

    def average(self, sketches: Tensor) -> Tensor:
        noise = self.grid.values(self._noise(sketches.shape[1]))
        return ((sketches.sum(0, dtype=torch.float64) + noise) / self.clients).float()


class UnclippedExamples(SketchClipExamples):
    def sketched_gradient(self, R: Any, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        noise = self.grid.values(self._noise(R.b)).float()
        return (R.sketch(self.per_example.gradients(w, x, y)).sum(0) + noise) / self.batch


class UnclippedSteps(NoisySteps):
    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return (self.per_example.gradients(w, x, y).sum(0) + self._noise(w.numel()).float()) / self.batch


@pytest.mark.parametrize(
    ("kind", "broken"), list(zip(SCENES, (UnclippedClients, UnclippedExamples, UnclippedSteps), strict=True))
)
def test_a_missing_clip_is_caught(kind: tuple[str, str], broken: type[Mechanism]) -> None:
    assert attack(kind, lambda t: build(kind, ENTROPY, broken)).violation


class KeyNoise(Entropy):
    """Noise out of the public key: statistically perfect, and known to everybody."""

    def __init__(self, t: int) -> None:
        self.key, self.calls = Key(2023).fold_in("noise", t), 0

    def draw(self, size: int) -> bytes:
        self.calls += 1
        return self.key.fold_in(self.calls).words(-(-size // 4)).tobytes()[:size]


class TorchNoise(Entropy):
    """Noise out of torch's global generator: whoever guesses the seed knows it."""

    def draw(self, size: int) -> bytes:
        return torch.randint(0, 256, (size,), dtype=torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("source", [KeyNoise, pytest.param(lambda t: TorchNoise(), marks=pytest.mark.slow)])
def test_noise_from_public_state_is_caught(kind: tuple[str, str], source: Callable[[int], Entropy]) -> None:
    assert attack(kind, lambda t: build(kind, source(t)), replay=True).violation


def test_only_the_replay_sees_that_noise_is_public() -> None:
    kind = ("sketch-clip", "client")
    assert not attack(kind, lambda t: build(kind, KeyNoise(t))).violation


@pytest.mark.parametrize("codec", ["f16", "int4", "sign1"])
def test_rounding_is_post_processing(codec: str) -> None:
    kind = ("sketch-clip", "client")
    scene = SCENES[kind][0](make=lambda t: build(kind, ENTROPY), codec=codec)
    assert not any(result.violation for result in audit_scene(scene, draws=150, delta=1e-5, confidence=0.999))


def test_gaussian_epsilon_inverts_the_profile() -> None:
    from scipy.stats import norm

    for mu in (0.1, 1.0, 4.0, 12.0):
        e = gaussian_epsilon(mu, 1e-5)
        assert norm.cdf(mu / 2 - e / mu) - math.exp(e + norm.logcdf(-mu / 2 - e / mu)) == pytest.approx(1e-5, rel=1e-4)
    assert gaussian_epsilon(0.0, 1e-5) == 0
    assert gaussian_epsilon(1e-6, 0.5) == 0


def test_lower_bound_holds_and_closes_in_on_gaussians() -> None:
    rng = np.random.default_rng(0)
    claimed = gaussian_epsilon(1.0, 1e-5)
    result = audit_scores(
        rng.normal(1, 1, 100_000),
        rng.normal(0, 1, 100_000),
        claimed_epsilon=claimed,
        delta=1e-5,
        confidence=0.999,
        adversary="exact",
    )
    assert 0.9 * claimed < result.lower_bound <= claimed
    assert result.direct <= result.lower_bound


def test_one_run_bound() -> None:
    assert one_run_bound(100, 50, canaries=200, delta=1e-5, confidence=0.95) == 0
    weak, strong = (one_run_bound(100, v, canaries=200, delta=1e-5, confidence=0.95) for v in (75, 100))
    assert 0 < weak < math.log(3) < strong
    with pytest.raises(InputError):
        one_run_bound(10, 11, canaries=20, delta=1e-5, confidence=0.95)


def test_audit_needs_draws() -> None:
    with pytest.raises(InputError, match="100 draws"):
        audit_scores(np.zeros(9), np.zeros(9), claimed_epsilon=1, delta=1e-5, confidence=0.9, adversary="x")


def test_command() -> None:
    flags = ["--noise-multiplier", "2", "--delta", "1e-5", "--draws", "200", "--one-run"]
    result = CliRunner().invoke(cli, ["audit-dp", *flags, "--json", "-"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["lower_bound"] <= document["claimed_epsilon"] == pytest.approx(1.9931, rel=1e-3)
    assert document["claim"]["unit"] == "client"
    assert document["one_run"]["lower_bound"] <= document["claimed_epsilon"]
    table = CliRunner().invoke(cli, ["audit-dp", *flags, "--mechanism", "per-step", "--unit", "example"])
    assert "consistent" in table.output
    bad = CliRunner().invoke(cli, ["audit-dp", *flags, "--mechanism", "per-step"])
    assert isinstance(bad.exception, InputError)
