"""Gossip on the convex problems of ``desketch verify``: the theorem's bound, times what gossip may leave over."""

import numpy as np
import pytest
import torch

from desketch.fed.channel import SketchChannel
from desketch.fed.engine import Engine
from desketch.fed.local import ClientData, LocalWork
from desketch.fed.optimizers import make_optimizer
from desketch.fed.tensor_client import tensor_clients
from desketch.keys import Key
from desketch.mesh.gossip import GossipMesh
from desketch.mesh.rounds import run_mesh
from desketch.mesh.topology import build_topology
from desketch.mesh.tree import TreeMesh
from desketch.theory.convergence import theorem
from desketch.verify.objectives import objectives

D, B, K, T, N = 12, 4, 5, 40, 4
CONVEX = [o for o in objectives(D) if o.problem.mu]


class _Descent(Engine):
    """K exact gradient steps of client c on f_c."""

    def __init__(self, objective):
        self.objective = objective

    def chunks(self, w, cohort, work, *, t):
        U = np.broadcast_to(w.double().numpy(), (N, 1, D))
        for _ in range(work.steps):
            U = U - work.eta * self.objective.gradients(U)
        yield list(range(len(cohort))), torch.from_numpy(U[[c.client for c in cohort], 0]).float() - w


def _gap(kind, objective, seed, **options):
    alpha = (D - 1) / B
    eta = theorem("local", "strongly-convex").max_step(objective.problem, alpha=alpha, K=K)
    one = torch.zeros(1)
    mesh = kind(
        clients=tensor_clients(
            [ClientData(c, one, one) for c in range(N)], _Descent(objective), LocalWork(steps=K, eta=eta)
        ),
        topology=build_topology("ring", N),
        channel=SketchChannel(d=D, b=B, family="ams", key=Key(seed), codec="f32"),
        optimizer=make_optimizer("sgd", eta_global=1.0),
        w0=torch.from_numpy(objective.w0).float(),
        **options,
    )
    run_mesh(mesh, rounds=T)
    bound = theorem("local", "strongly-convex").bound(objective.problem, alpha=alpha, K=K, eta=eta, T=T)
    return float(objective.values(mesh.model_vector.double().numpy()[None])[0]), bound


@pytest.mark.parametrize("objective", CONVEX, ids=lambda o: o.setting)
def test_gossip_converges_within_the_bound_times_what_it_leaves_over(objective):
    tolerance, seeds = 0.05, range(4)
    gaps, bounds = zip(*(_gap(GossipMesh, objective, s, tolerance=tolerance) for s in seeds), strict=True)
    exact = np.mean([_gap(TreeMesh, objective, s)[0] for s in seeds])
    assert np.mean(gaps) <= bounds[0] * (1 + tolerance) ** 2
    assert np.mean(gaps) <= exact * 1.3 + 1e-6
