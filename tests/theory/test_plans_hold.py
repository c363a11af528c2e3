"""Plans are executed through `desketch.fed`, frames and all, and end below the bound they promise.

Where a plan takes more rounds than a test can (heterogeneous clients and one bit: millions), its first rounds are run
against the theorem's bound after those rounds; and every message format is run at its largest admissible step, where
the floor is reached within the test.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn

from desketch import Key
from desketch.fed import ClientData, Federation, FlatModel, LocalWork, SketchChannel, make_optimizer, tensor_clients
from desketch.fed.engine import Engine, LoopEngine
from desketch.fed.rounds import run
from desketch.theory import Problem, embedding, theorems
from desketch.theory.link import CODECS
from desketch.theory.planner import Question, plan

D, N, KAPPA, TOLERANCE = 32, 4, 10.0, 3.3
HETEROGENEITY, TARGETS, LOCAL_STEPS = (0.0, 1.0, 10.0), (1e-2, 1e-4), (1, 5)


class Quadratics(Engine):
    """The K steps of least-squares clients as matrix products; `LoopEngine` computes the same by autograd."""

    def chunks(self, w, cohort, work, *, t):
        x, y = torch.stack([c.x for c in cohort]), torch.stack([c.y for c in cohort])
        u = w.expand(len(cohort), -1)
        for _ in range(work.steps):
            residual = torch.einsum("cij,cj->ci", x, u) - y
            u = u - work.eta * torch.einsum("cij,ci->cj", x, residual) / y.shape[1]
        yield list(range(len(cohort))), u - w


@dataclass(frozen=True)
class Bed:
    """Least squares f_c = (w - a_c)ᵀH_c(w - a_c)/2 as data, and its constants."""

    clients: list[ClientData]
    problem: Problem
    w0: torch.Tensor
    w_star: np.ndarray
    H: np.ndarray

    def gap(self, w: torch.Tensor) -> float:
        error = w.double().numpy() - self.w_star
        return float(error @ self.H @ error / 2)


@lru_cache
def bed(het: float) -> Bed:
    rng = np.random.default_rng(21)
    Q = [np.linalg.qr(rng.normal(size=(D, D)))[0] for _ in range(N)]
    H = np.stack([q @ np.diag(np.geomspace(1.0, KAPPA, D)) @ q.T for q in Q])
    a = rng.normal(size=(N, D))
    w_star = np.linalg.solve(H.mean(0), np.einsum("cij,cj->i", H, a) / N)
    size = np.sqrt((np.einsum("cij,cj->ci", H, w_star - a) ** 2).sum(1).mean())
    a, w_star = a * het / size, w_star * het / size
    step = rng.normal(size=D)
    w0 = torch.tensor(w_star + step / np.linalg.norm(step), dtype=torch.float32)
    roots = [np.sqrt(D) * np.linalg.cholesky(h).T for h in H]
    clients = [
        ClientData(c, torch.tensor(x, dtype=torch.float32), torch.tensor(x @ a[c], dtype=torch.float32))
        for c, x in enumerate(roots)
    ]
    error = w0.double().numpy() - w_star
    problem = Problem(
        L=KAPPA,
        mu=1.0,
        sigma_star=het,
        distance=float(np.linalg.norm(error)),
        gap=float(error @ H.mean(0) @ error / 2),
    )
    return Bed(clients, problem, w0, w_star, H.mean(0))


def model() -> FlatModel:
    return FlatModel(nn.Linear(D, 1, bias=False), loss=lambda out, y: ((out[..., 0] - y) ** 2).mean() / 2)


def federation(case: Bed, *, family: str, b: int, codec: str, K: int, eta: float, seed: int) -> Federation:
    return Federation(
        clients=tensor_clients(case.clients, Quadratics(model()), LocalWork(steps=K, eta=eta, batch=None)),
        channel=SketchChannel(d=D, b=b, key=Key(seed).fold_in("plans"), family=family, codec=codec),
        optimizer=make_optimizer("sgd", eta_global=1.0),
        w0=case.w0,
        evaluate_every=10**9,
    )


def measure(case: Bed, *, rounds: int, seeds: int, **choice) -> tuple[float, float]:
    """Mean of f(w^T) - f* over seeds, and its standard error."""
    gaps = []
    for seed in range(seeds):
        parties = federation(case, seed=seed, **choice)
        run(parties, rounds=rounds)
        gaps.append(case.gap(parties.model_vector))
    return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / np.sqrt(seeds))


def execute(case: Bed, p, *, cap: int, seeds: int) -> None:
    """Run the plan, or its first ``cap`` rounds, against its theorem's bound."""
    (statement,) = (t for t in theorems() if t.label == p.theorem)
    rounds = min(p.T, cap)
    bound = statement.bound(case.problem, alpha=p.alpha, K=p.K, eta=p.eta_local, T=rounds, noise=p.noise)
    if rounds == p.T:
        assert bound == p.bound
    choice = {"family": p.family, "b": p.b, "codec": p.codec, "K": p.K, "eta": p.eta_local}
    mean, error = measure(case, rounds=rounds, seeds=seeds, **choice)
    assert mean - TOLERANCE * error <= bound, (p, mean, error, bound)


def question(het: float, target: float, K: int | None, *codecs: str, **options) -> Question:
    return Question(
        problem=bed(het).problem, d=D, N=N, eps=target, K=K, codecs=codecs or tuple(CODECS), objective="bits", **options
    )


GRID = [(h, e, k, c) for h in HETEROGENEITY for e in TARGETS for k in LOCAL_STEPS for c in CODECS]


@pytest.mark.parametrize(("het", "target", "K", "codec"), GRID)
def test_plans_end_below_their_bound(het, target, K, codec):
    execute(bed(het), plan(question(het, target, K, codec)), cap=60, seeds=3)


@pytest.mark.slow
@pytest.mark.parametrize(("het", "target", "K", "codec"), GRID)
def test_long_plans_end_below_their_bound(het, target, K, codec):
    execute(bed(het), plan(question(het, target, K, codec)), cap=1000, seeds=4)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("K", LOCAL_STEPS)
@pytest.mark.parametrize("b", [8, 32])
def test_floors_bound_what_stays_at_the_largest_step(codec, K, b):
    """Where int4 once ended a thousand times above its bound: heterogeneity 10, and steps long enough to be there."""
    case = bed(10.0)
    family, alpha = "srht", embedding("srht", d=D, b=b).alpha
    noise = question(10.0, 1.0, K).noise(CODECS[codec], family, b, "theorem")
    label = "by distance" if K == 1 else "strcvx (sharper)"
    (statement,) = (t for t in theorems() if label in t.label)
    eta = statement.largest_step(case.problem, alpha=alpha, K=K, noise=noise)
    bound = statement.bound(case.problem, alpha=alpha, K=K, eta=eta, T=60, noise=noise)
    mean, error = measure(case, rounds=60, seeds=4, family=family, b=b, codec=codec, K=K, eta=eta)
    assert mean - TOLERANCE * error <= bound


def test_the_plan_for_heterogeneous_clients_is_not_four_bits():
    """d = 32, N = 4, kappa = 10, heterogeneity 10, target 1e-4: four bits cannot reach it in useful time."""
    p = plan(question(10.0, 1e-4, 1))
    assert p.codec in ("f32", "f16", "int8")
    execute(bed(10.0), p, cap=200, seeds=3)
    four = plan(question(10.0, 1e-4, 1, "int4"))
    assert four.T > 1000 * p.T
    assert four.binds[0] == "rounding of the clients' messages"


def test_private_plans_end_below_their_bound():
    """The mechanism that is shipped: sketches clipped at clients, noise at the server, here from a known seed."""
    from desketch.privacy.mechanisms import SketchClipClients
    from desketch.privacy.noise import SeededNoiseNotPrivate

    start, clip, z, rounds = bed(1.0), 60.0, 0.05, 80
    p = plan(question(1.0, 1.0, 1, "int8", noise_multiplier=z, clip=clip))
    (statement,) = (t for t in theorems() if t.label == p.theorem)
    at_optimum = replace(start.problem, distance=1e-3, gap=None)  # where noise is all there is
    case = replace(start, problem=at_optimum, w0=torch.tensor(start.w_star, dtype=torch.float32))
    gaps = []
    for seed in range(4):
        parties = federation(case, family=p.family, b=p.b, codec=p.codec, K=1, eta=p.eta_local, seed=seed)
        parties.channel.mechanism = SketchClipClients(
            clip=p.eta_local * clip,
            noise_multiplier=z,
            entropy=SeededNoiseNotPrivate(seed),
            sampling_rate=1.0,
            clients=N,
        )
        run(parties, rounds=rounds)
        gaps.append(case.gap(parties.model_vector))
    at = {"alpha": p.alpha, "K": 1, "eta": p.eta_local, "T": rounds}
    error = np.std(gaps, ddof=1) / 2
    assert np.mean(gaps) - TOLERANCE * error <= statement.bound(case.problem, noise=p.noise, **at)
    assert np.mean(gaps) > statement.bound(case.problem, **at)  # and the noise is what it comes from


def test_the_fast_engine_computes_what_autograd_does():
    case, work = bed(1.0), LocalWork(steps=5, eta=0.01, batch=None)
    fast = Quadratics(model()).updates(case.w0, case.clients, work, t=1)
    slow = LoopEngine(model()).updates(case.w0, case.clients, work, t=1)
    assert torch.allclose(fast, slow, atol=1e-5)
