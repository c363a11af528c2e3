"""Optimisers for the attacker's objective, one a file, behind one iterator interface."""

from __future__ import annotations

from desketch.attack.solvers.base import Iterate, Solver
from desketch.attack.solvers.box import Box
from desketch.attack.solvers.first_order import AdamSolver, Lbfgs
from desketch.attack.solvers.gradient_descent import GradientDescent
from desketch.attack.solvers.levenberg_marquardt import LevenbergMarquardt
from desketch.attack.solvers.prior_continuation import PriorContinuation

__all__ = [
    "AdamSolver",
    "Box",
    "GradientDescent",
    "Iterate",
    "Lbfgs",
    "LevenbergMarquardt",
    "PriorContinuation",
    "Solver",
]
