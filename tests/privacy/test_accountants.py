import logging
import math
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desketch.errors import BudgetError, InputError, PrivacyError
from desketch.privacy.accountants import METHODS, epsilon
from desketch.privacy.calibrate import Budget, BudgetKeeper, noise_multiplier
from desketch.privacy.events import Event, Gaussian, Ledger, LocalSteps, PoissonSampled, Repeated

# (event, rounds, delta, {method: value or None where a precondition must raise}, pld under replace-one); the values
# are dp-accounting 0.6.0's at discretization 1e-4, and the paper's theorems worked out by hand
ORACLES = {
    "S2": (LocalSteps(10_000, 100, 10, 20.0), 100, 1e-5, (0.04555, 0.05173, None, None, 7.654), 0.09707),
    "S3": (LocalSteps(60_000, 256, 5, 1.1), 2812, 1e-5, (2.38150, 2.59636, None, None, None), 4.22101),
    "S4": (LocalSteps(1000, 50, 5, 2.0), 50, 1e-5, (1.75259, 1.92845, None, None, None), 3.34519),
    "S5": (LocalSteps(500, 32, 10, 4.0), 100, 1e-4, (1.77273, 1.96706, None, None, None), 3.85140),
}


@pytest.mark.parametrize("name", ORACLES)
def test_oracle_table(name: str) -> None:
    event, rounds, delta, values, replace_one = ORACLES[name]
    ledger = Ledger("example").plus(event, count=rounds)
    for method, value in zip(METHODS, values, strict=True):
        if value is None:
            with pytest.raises(PrivacyError, match="needs"):
                epsilon(ledger, delta, method=method)
        else:
            assert epsilon(ledger, delta, method=method) == pytest.approx(value, rel=1e-3)
    swapped = Ledger("example", "replace-one").plus(event, count=rounds)
    assert epsilon(swapped, delta) == pytest.approx(replace_one, rel=1e-3)


def test_oracle_with_very_much_noise() -> None:
    ledger = Ledger("example").plus(LocalSteps(10_000, 100, 5, 61063.6), count=100)
    assert epsilon(ledger, 5e-6) <= 2e-4
    assert epsilon(ledger, 5e-6, method="rdp") == 0
    for method, value in (("paper-nested", 11.127), ("paper-flat", 1.2604), ("paper-subsampled", 0.00127)):
        assert epsilon(ledger, 5e-6, method=method) == pytest.approx(value, rel=3e-3 if value < 1 else 1e-3)


def test_client_level_oracle() -> None:
    ledger = Ledger("client").plus(PoissonSampled(0.1, Gaussian(1.0)), count=200)
    assert epsilon(ledger, 1e-5) == pytest.approx(9.97128, rel=1e-3)


@pytest.mark.parametrize(("target", "z"), [(1.0, 3.12973), (4.0, 1.16134)])
def test_calibration_oracle(target: float, z: float) -> None:
    def ledger(z: float) -> Ledger:
        return Ledger("example").plus(PoissonSampled(0.05, Gaussian(z)), count=250)

    found = noise_multiplier(target, 1e-5, ledger)
    assert found == pytest.approx(z, rel=1e-3)
    assert epsilon(ledger(found), 1e-5) <= target < epsilon(ledger(found * (1 - 1e-4)), 1e-5)


@pytest.mark.parametrize(
    ("target", "delta", "q", "count", "adjacency"),
    [
        (0.001, 1e-10, 1.0, 1, "add-remove"),  # finer than the coarse grid
        (0.01, 1e-6, 0.01, 100, "add-remove"),
        (0.3, 1e-5, 1.0, 1, "add-remove"),
        (2.0, 0.1, 0.3, 10, "replace-one"),
        (15.0, 1e-5, 0.2, 300, "add-remove"),
        (60.0, 1e-5, 1.0, 500, "replace-one"),
    ],
)
def test_calibrated_noise_is_the_least_to_six_digits(
    target: float, delta: float, q: float, count: int, adjacency: str
) -> None:
    def ledger(z: float) -> Ledger:
        return Ledger("client", adjacency).plus(PoissonSampled(q, Gaussian(z)) if q < 1 else Gaussian(z), count=count)

    z = noise_multiplier(target, delta, ledger)
    assert epsilon(ledger(z), delta) <= target < epsilon(ledger(z * (1 - 2e-6)), delta)
    assert epsilon(ledger(z), delta) <= epsilon(ledger(z), delta, rough=True) * (1 + 1e-9)  # rough, but proved


def test_calibration_by_renyi_dp_passes_a_jump() -> None:
    """Its epsilon falls from 0.0035 to 0 at once, where the orders that are tried end."""

    def ledger(z: float) -> Ledger:
        return Ledger("client").plus(PoissonSampled(0.1, Gaussian(z)), count=100)

    z = noise_multiplier(1e-3, 1e-5, ledger, method="rdp")
    assert epsilon(ledger(z), 1e-5, method="rdp") <= 1e-3 < epsilon(ledger(z * (1 - 2e-6)), 1e-5, method="rdp")


def test_the_papers_theorem_is_false_without_its_constants() -> None:
    """Inside its own precondition (K = 1, step epsilon 0.9) it claims sqrt(T) * 0.9 = 90; the truth is about 183."""
    z = math.sqrt(2 * math.log(1.25 / 1e-6)) / 0.9
    assert epsilon(Ledger("example").plus(Gaussian(z), count=10_000), 1e4 * 1e-6) > 1.5 * 90


def test_unsampled_gaussian_against_the_closed_form() -> None:
    """Balle and Wang 2018: delta = Phi(1/2z - e z) - exp(e) Phi(-1/2z - e z)."""
    from scipy.stats import norm

    z, delta = 2.0, 1e-5
    e = epsilon(Ledger("client").plus(Gaussian(z)), delta)
    exact = norm.cdf(0.5 / z - e * z) - math.exp(e) * norm.cdf(-0.5 / z - e * z)
    assert exact == pytest.approx(delta, rel=1e-3)


def test_replace_one_convention_of_the_library() -> None:
    """dp-accounting 0.6 doubles the sensitivity under REPLACE_ONE in PLD and not in RDP; ours doubles in both."""
    import dp_accounting as dpa
    from dp_accounting import pld, rdp

    relation = dpa.NeighboringRelation
    raw = {}
    for name, accountant in (("pld", pld.PLDAccountant), ("rdp", rdp.RdpAccountant)):
        for adjacency in (relation.ADD_OR_REMOVE_ONE, relation.REPLACE_ONE):
            one = accountant(neighboring_relation=adjacency)
            one.compose(dpa.GaussianDpEvent(2.0))
            raw[name, adjacency] = one.get_epsilon(1e-5)
    assert raw["rdp", relation.REPLACE_ONE] == raw["rdp", relation.ADD_OR_REMOVE_ONE]
    assert raw["pld", relation.REPLACE_ONE] > 2 * raw["pld", relation.ADD_OR_REMOVE_ONE]
    for method in ("pld", "rdp"):
        swapped = epsilon(Ledger("example", "replace-one").plus(Gaussian(2.0)), 1e-5, method=method)
        assert swapped == pytest.approx(epsilon(Ledger("example").plus(Gaussian(1.0)), 1e-5, method=method), rel=1e-4)


def test_rdp_refuses_what_it_does_not_cover() -> None:
    ledger = Ledger("example", "replace-one").plus(PoissonSampled(0.1, Gaussian(1.0)))
    with pytest.raises(PrivacyError, match="add-remove"):
        epsilon(ledger, 1e-5, method="rdp")


@dataclass(frozen=True)
class Laplace(Event):
    scale: float


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "event",
    [
        Laplace(1.0),
        Repeated(Laplace(1.0), 3),
        PoissonSampled(0.1, Laplace(1.0)),
        PoissonSampled(0.1, Repeated(Gaussian(1.0), 2)),
    ],
)
def test_unknown_event_is_refused(event: Event, method: str) -> None:
    with pytest.raises(PrivacyError, match="cover"):
        epsilon(Ledger("example").plus(Gaussian(1.0)).plus(event), 1e-5, method=method)


def test_a_run_marked_not_private_has_no_epsilon() -> None:
    ledger = Ledger("client", not_private="NOT PRIVATE: seeded noise").plus(Gaussian(1.0))
    with pytest.raises(PrivacyError, match="NOT PRIVATE"):
        epsilon(ledger, 1e-5)


def test_worst_client_counts_under_different_sizes() -> None:
    sizes = {"a": 200, "b": 1000, "c": 500}
    events = {party: LocalSteps(n, 50, 2, 1.5) for party, n in sizes.items()}
    ledger = Ledger("example")
    for party, event in events.items():
        ledger = ledger.plus(event, parties=[party], count=10)
    alone = {party: epsilon(Ledger("example").plus(event, count=10), 1e-5) for party, event in events.items()}
    assert epsilon(ledger, 1e-5) == alone["a"] == max(alone.values())
    longer = ledger.plus(events["b"], parties=["b"], count=500)
    assert epsilon(longer, 1e-5) > alone["a"]


def test_mixed_history_is_at_least_each_part() -> None:
    one, two = PoissonSampled(0.1, Gaussian(1.0)), Gaussian(4.0)
    both = epsilon(Ledger("client").plus(one, count=5).plus(two, count=3), 1e-5)
    assert both > epsilon(Ledger("client").plus(one, count=5), 1e-5)
    assert both > epsilon(Ledger("client").plus(two, count=3), 1e-5)


@settings(max_examples=8, deadline=None)
@given(
    n=st.integers(50, 5000),
    fraction=st.floats(0.01, 1.0),
    K=st.integers(1, 5),
    z=st.floats(1.5, 20.0),
    T=st.integers(1, 50),
)
def test_methods_agree_in_order(n: int, fraction: float, K: int, z: float, T: int) -> None:
    """Pld is below rdp, below every theorem of the paper that applies, and grows with the number of rounds."""
    event = LocalSteps(n, max(2, int(n * fraction)), K, z)
    ledger = Ledger("example").plus(event, count=T)
    tight = epsilon(ledger, 1e-6)
    assert tight <= epsilon(ledger, 1e-6, method="rdp") + 1e-3
    assert tight <= epsilon(ledger.plus(event), 1e-6) + 1e-9
    for method in ("paper-nested", "paper-flat"):
        try:
            assert tight <= epsilon(ledger, 1e-6, method=method)
        except PrivacyError:
            continue


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan, math.inf])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        epsilon(Ledger("client").plus(Gaussian(1.0)), delta)
    with pytest.raises(InputError, match="delta"):
        Budget(1.0, delta)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilon_and_noise(bad: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        Budget(bad, 1e-5)
    with pytest.raises(InputError, match="epsilon"):
        noise_multiplier(bad, 1e-5, lambda z: Ledger("client").plus(Gaussian(z)))
    with pytest.raises(InputError, match="noise_multiplier"):
        Gaussian(bad)


def test_bad_events() -> None:
    with pytest.raises(InputError, match="batch of 11"):
        LocalSteps(10, 11, 1, 1.0)
    with pytest.raises(InputError, match="sampling rate"):
        PoissonSampled(1.5, Gaussian(1.0))
    with pytest.raises(InputError, match="count"):
        Ledger("client").plus(Gaussian(1.0), count=0)
    with pytest.raises(InputError, match="unit"):
        Ledger("household")
    with pytest.raises(InputError, match="adjacency"):
        Ledger("client", "zero-out")
    with pytest.raises(InputError, match="method"):
        epsilon(Ledger("client"), 1e-5, method="moments")


def test_so_little_noise_that_nothing_can_be_said() -> None:
    assert epsilon(Ledger("client").plus(Gaussian(1e-6)), 1e-5) == math.inf


def test_unreachable_calibration_is_an_error() -> None:
    with pytest.raises(PrivacyError, match="no noise multiplier"):
        noise_multiplier(1e9, 1e-5, lambda z: Ledger("client").plus(Gaussian(z)), method="rdp")


def test_the_accountants_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        epsilon(Ledger("client").plus(PoissonSampled(0.1, Gaussian(0.97)), count=7), 1e-5, method="rdp")
    assert not caplog.records


def _charge_forever(keeper: BudgetKeeper, event: Event) -> None:
    for _ in range(10_000):
        keeper.charge(event)


class TestBudget:
    event = PoissonSampled(0.2, Gaussian(1.1))

    def test_stops_exactly_before_the_first_illegal_release(self) -> None:
        keeper = BudgetKeeper(Ledger("client"), Budget(3.0, 1e-5))
        with pytest.raises(BudgetError, match="nothing was released"):
            _charge_forever(keeper, self.event)
        assert epsilon(keeper.ledger, 1e-5) <= 3.0 < epsilon(keeper.ledger.plus(self.event), 1e-5)

    def test_refusal_records_nothing_and_resume_gives_no_second_budget(self) -> None:
        keeper = BudgetKeeper(Ledger("client").plus(self.event, count=5), Budget(0.5, 1e-5))
        before = keeper.ledger
        with pytest.raises(BudgetError):
            keeper.charge(self.event)
        assert keeper.ledger == before
        with pytest.raises(BudgetError):
            BudgetKeeper(Ledger.from_dict(before.to_dict()), Budget(0.5, 1e-5)).charge(self.event)

    def test_a_round_is_charged_whole_or_not_at_all(self) -> None:
        small, large = LocalSteps(60, 30, 2, 1.0), LocalSteps(3000, 30, 2, 1.0)
        keeper = BudgetKeeper(Ledger("example"), Budget(4.0, 1e-5))
        with pytest.raises(BudgetError):
            keeper.charge_each({"small": small, "large": large})
        assert not keeper.ledger.spent
        keeper.charge(large, parties=["large"])
        assert set(keeper.ledger.spent) == {"large"}

    def test_no_budget_still_keeps_the_ledger(self) -> None:
        keeper = BudgetKeeper(Ledger("client"))
        keeper.charge(self.event)
        assert keeper.ledger.spent["everybody"][self.event] == 1

    def test_the_papers_budget_stops_too(self) -> None:
        event = LocalSteps(10_000, 100, 5, 61063.6)
        keeper = BudgetKeeper(Ledger("example"), Budget(0.5, 5e-6, "paper-flat"))
        with pytest.raises(BudgetError):
            _charge_forever(keeper, event)
        assert epsilon(keeper.ledger, 5e-6, method="paper-flat") <= 0.5


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0.1, 9.0), st.floats(0.01, 1.0), st.integers(1, 9)), max_size=6
    )
)
def test_ledger_survives_json(entries: list[tuple[str, float, float, int]]) -> None:
    import json

    ledger = Ledger("example", "replace-one")
    for party, z, q, count in entries:
        ledger = ledger.plus(PoissonSampled(q, Gaussian(z)), parties=[party], count=count)
        ledger = ledger.plus(LocalSteps(100, 10, count, z), parties=[party])
    assert Ledger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger


def test_ledger_refuses_strangers() -> None:
    good = Ledger("client").plus(Gaussian(1.0)).to_dict()
    bad_event = {**good, "parties": {"everybody": [{"event": {"kind": "Magic"}, "count": 1}]}}
    for broken in (bad_event, {**good, "version": 2}, {}, {**good, "parties": [1]}):
        with pytest.raises(PrivacyError):
            Ledger.from_dict(broken)


def test_accounting_needs_no_torch() -> None:
    code = (
        "import sys; from desketch.privacy.events import *; from desketch.privacy.accountants import epsilon;"
        "import desketch.privacy.record, desketch.cli.account;"
        "assert epsilon(Ledger('client').plus(Gaussian(1.0)), 1e-5) > 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
