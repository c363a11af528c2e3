import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import desketch
from desketch.errors import BudgetError, InputError, PrivacyError
from desketch.privacy.accountants import epsilon
from desketch.privacy.events import Gaussian, LocalSteps, PoissonSampled
from desketch.privacy.mechanisms import NoisySteps, SketchClipClients, SketchClipClientsShared, SketchClipExamples
from desketch.privacy.noise import Entropy, SeededNoiseNotPrivate
from desketch.privacy.per_example import PerExample
from desketch.privacy.planning import PrivateRun, RunShape, plan_private_run
from desketch.privacy.settings import PerStep, SketchClip

D, B_SKETCH = 96, 16


class Silent(Entropy):
    """Uniforms that sample everybody, and no noise: what is left is the clipped sum."""

    def draw(self, size: int) -> bytes:
        return bytes(size)

    def normal(self, *shape: int, std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(*shape, dtype=dtype)

    def discrete_normal(self, *shape: int, s: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int64)


def problem(n: int = 30) -> tuple[PerExample, Tensor, Tensor, Tensor]:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))
    w = torch.cat([p.detach().flatten() for p in model.parameters()])
    return PerExample(model), w, torch.randn(n, 7) * 3, torch.randint(0, 3, (n,))


def clients(**changes: Any) -> SketchClipClients:
    given = {"clip": 0.7, "noise_multiplier": 1.3, "sampling_rate": 0.25, "clients": 40}
    return SketchClipClients(**(given | changes))


class TestPerStep:
    def test_without_noise_it_is_the_clipped_mean(self) -> None:
        per_example, w, x, y = problem()
        step = NoisySteps(clip=0.5, noise_multiplier=1.0, batch=30, per_example=per_example, entropy=Silent())
        want = per_example.clipped_sum(w, x, y, clip=0.5) / 30
        assert torch.allclose(step.gradient(w, x, y), want.float())

    def test_noise_has_the_stated_size_and_an_empty_batch_still_has_it(self) -> None:
        per_example, w, x, y = problem(n=2000)
        step = NoisySteps(
            clip=0.5, noise_multiplier=2.0, batch=1, per_example=per_example, entropy=SeededNoiseNotPrivate(1)
        )
        noise = torch.cat([step.gradient(w, x[:1] * 0, y[:1]) - step.gradient(w, x[:1] * 0, y[:1]) for _ in range(300)])
        scale = 2.0 * 0.5 * math.sqrt(2)
        assert abs(float(noise.square().mean()) / scale**2 - 1) * math.sqrt(noise.numel() / 2) < 4.5
        empties = [step.gradient(w, x, y) for _ in range(20)]
        assert all(float(g.abs().max()) > 0 for g in empties)

    def test_the_noise_of_a_mean_shrinks_with_the_batch(self) -> None:
        """Two gradients of one full batch differ by their noise alone: standard deviation z C sqrt(2) / B."""
        per_example, w, x, y = problem(n=8)
        entropy = SeededNoiseNotPrivate(3)
        step = NoisySteps(clip=0.5, noise_multiplier=2.0, batch=8, per_example=per_example, entropy=entropy)
        noise = torch.cat([step.gradient(w, x, y) - step.gradient(w, x, y) for _ in range(50)])
        scale = 2.0 * 0.5 * math.sqrt(2) / 8
        assert abs(float(noise.square().mean()) / scale**2 - 1) * math.sqrt(noise.numel() / 2) < 4.5

    def test_batches_have_the_stated_mean_size_and_no_fixed_one(self) -> None:
        per_example, _, x, y = problem(n=200)
        entropy = SeededNoiseNotPrivate(2)
        step = NoisySteps(clip=0.5, noise_multiplier=1.0, batch=20, per_example=per_example, entropy=entropy)
        sizes = torch.tensor([float(len(step._sample(x, y)[1])) for _ in range(400)])
        assert abs(float(sizes.mean()) - 20) < 4.5 * math.sqrt(18 / 400)
        assert float(sizes.var()) == pytest.approx(18, rel=0.35)

    def test_a_batch_larger_than_the_data_is_refused(self) -> None:
        per_example, w, x, y = problem(n=5)
        step = NoisySteps(clip=1.0, noise_multiplier=1.0, batch=6, per_example=per_example)
        with pytest.raises(InputError, match="5 examples"):
            step.gradient(w, x, y)
        with pytest.raises(InputError, match="at least one"):
            NoisySteps(clip=1.0, noise_multiplier=1.0, batch=0, per_example=per_example)

    def test_event(self) -> None:
        step = NoisySteps(clip=1.0, noise_multiplier=1.5, batch=6, per_example=problem()[0])
        assert step.event(examples=60, steps=4) == LocalSteps(60, 6, 4, 1.5)


@pytest.mark.parametrize("family", desketch.FAMILIES)
class TestSensitivity:
    """One unit more or less moves the released sum by at most C, whatever the family and the unit's size."""

    @settings(max_examples=20, deadline=None)
    @given(scale=st.sampled_from([0.0, 1e-20, 0.1, 1.0, 1e10, 1e30]), seed=st.integers(0, 10**6))
    def test_clients(self, family: str, scale: float, seed: int) -> None:
        R = desketch.draw(family, d=D, b=B_SKETCH, key=desketch.Key(seed))
        generator = torch.Generator().manual_seed(seed)
        others, one = torch.randn(5, D, generator=generator), torch.randn(1, D, generator=generator) * scale
        m = clients(entropy=Silent())
        with_one = m.average(m.guard(R.sketch(torch.cat([others, one]))))
        without = m.average(m.guard(R.sketch(others)))
        assert float((with_one - without).double().norm()) * 0.25 * 40 <= 0.7 * (1 + 1e-5)

    def test_examples(self, family: str) -> None:
        per_example, w, x, y = problem()
        R = desketch.draw(family, d=w.numel(), b=B_SKETCH, key=desketch.Key(3))
        m = SketchClipExamples(clip=0.3, noise_multiplier=1.0, batch=30, per_example=per_example, entropy=Silent())
        total = m.sketched_gradient(R, w, x, y) * 30
        rows = R.sketch(per_example.gradients(w, x, y)).double()
        want = ((0.3 / rows.norm(dim=1)).clamp(max=1)[:, None] * rows).sum(0)
        assert torch.allclose(total.double(), want, atol=1e-5)
        for i in (0, 7):
            one = SketchClipExamples(clip=0.3, noise_multiplier=1.0, batch=1, per_example=per_example, entropy=Silent())
            assert float(one.sketched_gradient(R, w, 1e3 * x[i : i + 1], y[i : i + 1]).double().norm()) <= 0.3

    def test_noise_after_the_sketch_costs_what_unsketched_noise_costs(self, family: str) -> None:
        """E|R'n|^2 = d z^2 for n in R^b; for noise before the sketch it is (1 + alpha) d z^2."""
        after, before, draws = [], [], 60
        source = SeededNoiseNotPrivate(9)
        for i in range(draws):
            R = desketch.draw(family, d=D, b=B_SKETCH, key=desketch.Key(77).fold_in("round", i))
            after.append(R.desketch(source.normal(50, B_SKETCH, std=1.0)).square().sum(1).mean() / D)
            before.append(R.desketch(R.sketch(source.normal(50, D, std=1.0))).square().sum(1).mean() / D)
        for values, expected in ((torch.stack(after), 1.0), (torch.stack(before), 1 + R.alpha)):
            error = float(values.std()) / math.sqrt(draws) + 1e-9
            assert abs(float(values.mean()) - expected) < 4.5 * max(error, 0.02 * expected / 4.5)


class TestClientLevel:
    def test_server_clips_what_it_decodes(self) -> None:
        m = clients(entropy=Silent())
        liar = torch.full((1, B_SKETCH), 1e6)
        assert float(m.average(liar).double().norm()) * 10 <= 0.7 * (1 + 1e-5)

    def test_an_empty_cohort_is_noise(self) -> None:
        out = clients().average(torch.zeros(0, B_SKETCH))
        assert out.shape == (B_SKETCH,)
        assert float(out.norm()) > 0

    def test_noise_variance(self) -> None:
        m = clients(entropy=SeededNoiseNotPrivate(4))
        values = torch.stack([m.average(torch.zeros(3, B_SKETCH)) for _ in range(2000)]) * 10
        z = (float(values.square().mean()) / (1.3 * 0.7) ** 2 - 1) * math.sqrt(values.numel() / 2)
        assert abs(z) < 4.5

    @pytest.mark.parametrize("arrived", [0, 4, 10, 17])
    def test_shared_noise_never_falls_below(self, arrived: int) -> None:
        given = {"clip": 0.7, "noise_multiplier": 1.3, "sampling_rate": 0.25, "clients": 40}
        m = SketchClipClientsShared(**given, entropy=SeededNoiseNotPrivate(6))
        values = torch.stack([m.average(m.guard(torch.zeros(arrived, B_SKETCH))) for _ in range(1500)]) * 10
        want = (1.3 * 0.7) ** 2 * max(1.0, arrived / 10)
        assert abs(float(values.square().mean()) / want - 1) * math.sqrt(values.numel() / 2) < 4.5

    def test_sample_is_poisson_and_event_says_so(self) -> None:
        m = clients(entropy=SeededNoiseNotPrivate(2))
        sizes = torch.tensor([float(len(m.sample(40))) for _ in range(2000)])
        assert abs(float(sizes.mean()) - 10) / math.sqrt(40 * 0.25 * 0.75 / 2000) < 4.5
        assert m.event() == PoissonSampled(0.25, Gaussian(1.3))
        with pytest.raises(InputError, match="40 clients"):
            m.sample(39)


@pytest.mark.parametrize("kind", [SketchClipClients, SketchClipClientsShared])
def test_every_claim_is_in_the_repr(kind: type[SketchClipClients]) -> None:
    text = repr(kind(clip=1.0, noise_multiplier=1.0, sampling_rate=0.5, clients=4))
    for word in ("unit='client'", "adjacency='add-remove'", "Poisson", "observer", "operating system entropy"):
        assert word in text
    seeded = kind(clip=1.0, noise_multiplier=1.0, sampling_rate=0.5, clients=4, entropy=SeededNoiseNotPrivate(1))
    assert "NOT PRIVATE" in repr(seeded)


@pytest.mark.parametrize(
    "bad", [{"clip": 0.0}, {"clip": math.nan}, {"noise_multiplier": 0.0}, {"noise_multiplier": -1.0}]
)
def test_bad_numbers(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        clients(**bad)


def shape(**changes: Any) -> RunShape:
    everyone: Callable[[int], Sequence[int]] = lambda t: range(3)  # noqa: E731
    given: dict[str, Any] = {
        "sizes": [100, 60, 80],
        "batch": 10,
        "steps": 1,
        "rounds": 5,
        "fraction": 0.5,
        "codec": "f32",
        "cohort": everyone,
        "per_example": problem()[0],
    }
    return RunShape(**(given | changes))


KINDS = [("per-step", "example", "step"), ("sketch-clip", "example", "examples"), ("sketch-clip", "client", "sketch")]


@pytest.mark.parametrize(("mechanism", "unit", "place"), KINDS)
class TestPlanning:
    def plan(self, mechanism: str, unit: str, **changes: Any) -> PrivateRun:
        given: dict[str, Any] = {"clip": 1.0, "delta": 1e-5, "epsilon": 1.0}
        kind = PerStep if mechanism == "per-step" else partial(SketchClip, unit=unit)
        return plan_private_run(shape(), kind(**(given | changes)))

    def test_calibrated_noise_spends_the_budget_in_exactly_the_rounds(
        self, mechanism: str, unit: str, place: str
    ) -> None:
        run = self.plan(mechanism, unit)
        assert run.place == place
        for t in range(1, 6):
            run.ledger.charge(t)
            assert run.ledger.epsilon() <= 1.0
        assert run.ledger.spent() == pytest.approx(1.0, rel=1e-3)
        with pytest.raises(BudgetError):
            run.ledger.charge(6)

    def test_given_noise_is_used_and_resume_goes_on(self, mechanism: str, unit: str, place: str) -> None:
        run = self.plan(mechanism, unit, noise_multiplier=3.0, epsilon=None)
        run.ledger.charge(1)
        again = self.plan(mechanism, unit, noise_multiplier=3.0, epsilon=None)
        again.ledger.load_state_dict(run.ledger.state_dict())
        again.ledger.charge(2)
        run.ledger.charge(2)
        assert again.ledger.record == run.ledger.record
        assert run.mechanism.noise_multiplier == 3.0

    def test_seeded_noise_marks_everything(self, mechanism: str, unit: str, place: str) -> None:
        run = self.plan(mechanism, unit, noise_multiplier=3.0, not_private_seed=7)
        run.ledger.charge(1)
        assert run.ledger.epsilon() is None
        assert run.ledger.facts()["epsilon"] is None
        assert "NOT PRIVATE" in run.ledger.facts()["noise"]
        private = self.plan(mechanism, unit, noise_multiplier=3.0)
        private.ledger.load_state_dict(run.ledger.state_dict())
        with pytest.raises(PrivacyError, match="NOT PRIVATE"):
            private.ledger.spent()

    @pytest.mark.parametrize(
        "bad", [{"delta": 0.0}, {"epsilon": -1.0}, {"clip": -1.0}, {"epsilon": None}, {"delta": 1.0}]
    )
    def test_bad_numbers(self, mechanism: str, unit: str, place: str, bad: dict[str, Any]) -> None:
        with pytest.raises(InputError):
            self.plan(mechanism, unit, **bad)


def test_the_smallest_client_decides() -> None:
    run = plan_private_run(shape(), PerStep(clip=1.0, delta=1e-5, noise_multiplier=2.0))
    run.ledger.charge(1)
    from desketch.privacy.events import Ledger

    assert run.ledger.spent() == epsilon(Ledger("example").plus(LocalSteps(60, 10, 1, 2.0)), 1e-5)


def test_only_attending_clients_are_charged() -> None:
    asked = PerStep(clip=1.0, delta=1e-5, noise_multiplier=2.0)
    run = plan_private_run(shape(cohort=lambda t: [t % 3]), asked)
    for t in range(1, 7):
        run.ledger.charge(t)
    assert {sum(counts.values()) for counts in run.ledger.record.ledger.spent.values()} == {2}


def test_refused_combinations() -> None:
    given: dict[str, Any] = {"clip": 1.0, "delta": 1e-5, "noise_multiplier": 1.0}
    with pytest.raises(PrivacyError, match="K = 1"):
        plan_private_run(shape(steps=2), SketchClip(unit="example", **given))
    with pytest.raises(PrivacyError, match="not rounded"):
        plan_private_run(shape(codec="int4"), SketchClip(noise_by="clients", **given))
    with pytest.raises(InputError, match="no mechanism"):
        plan_private_run(shape(), SketchClip(unit="nobody", **given))
    with pytest.raises(InputError, match="60 examples"):
        plan_private_run(shape(batch=61), PerStep(**given))
    with pytest.raises(InputError, match="batch size"):
        plan_private_run(shape(batch=None), PerStep(**given))
    with pytest.raises(InputError, match="added by"):
        plan_private_run(shape(), SketchClip(noise_by="nobody", **given))


def test_a_ledger_of_another_unit_is_refused() -> None:
    given: dict[str, Any] = {"clip": 1.0, "delta": 1e-5, "noise_multiplier": 1.0}
    by_client = plan_private_run(shape(), SketchClip(**given))
    by_example = plan_private_run(shape(), SketchClip(unit="example", **given))
    with pytest.raises(PrivacyError, match="resume with the mechanism"):
        by_example.ledger.load_state_dict(by_client.ledger.state_dict())
