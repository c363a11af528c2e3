"""Noise: what a round adds to the mean update besides the sketch, and how it enters every theorem.

A round moves w by -eta·ũ, ũ = Rᵀ(R·ḡ + ē + e₀ + z) summed over K local steps. Given everything before it, each error
has mean zero:

* ``gradient``  nu: a local step sees ∇f_c + ξ with E|ξ|² <= nu², independent over clients and steps (mini-batches);
* ``uplink``    omega: client c's message errs by e_c, E|Rᵀe_c|² <= (1+alpha) omega |Δ_c|², independent over clients;
* ``downlink``  the same for the broadcast e₀ and the mean update; ``echo`` is the omega that rounding the broadcast
  applies to errors already in it;
* ``absence``   rho: the n clients heard are a sample, E|mean over the sample|² <= |mean|² + rho · mean_c|Δ_c|²;
* ``release``   noise z for privacy, E|Rᵀz|² <= (eta·K·release)².

With A = 1 + alpha, P = 1 + downlink and Q = (1 + echo)·uplink/n + P·rho,

    E|ũ|² <= A (P |ḡ|² + Q mean_c|g_c|²) + (1 + echo) release²        (Lemma "wire" of docs/theory.md).

The part proportional to |ḡ|² only makes alpha larger (`Noise.loaded`); what the clients hold against each other at the
optimum, nu and the release leave a floor (`Noise.added`). Without noise both vanish and the theorems are as before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from desketch.theory.problem import Problem, demand

__all__ = ["SILENT", "Noise", "client_energy", "harmonic", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of a round; see the module's docstring for the letters."""

    clients: int = 1
    gradient: float = 0.0
    uplink: float = 0.0
    downlink: float = 0.0
    echo: float | None = None  # as ``downlink`` unless the code's bound is better on fresh sketches than on any vector
    absence: float = 0.0
    release: float = 0.0

    def __post_init__(self) -> None:
        demand(self.clients >= 1, f"a mean is of at least one client, got {self.clients}")
        for name, value in vars(self).items():
            demand(
                value is None or (math.isfinite(value) and value >= 0),
                f"noise {name} must be a finite number >= 0, got {value}",
            )

    @property
    def silent(self) -> bool:
        """Whether there is none."""
        return not (self.gradient or self.uplink or self.downlink or self.absence or self.release)

    @property
    def mean_factor(self) -> float:
        """P: multiplies the energy of the mean update."""
        return 1 + self.downlink

    @property
    def rounding_factor(self) -> float:
        """(1 + echo)·uplink/n: the rounding of the clients' own messages."""
        return self._echo * self.uplink / self.clients

    @property
    def client_factor(self) -> float:
        """Q: multiplies the mean energy of single clients' updates."""
        return self.rounding_factor + self.mean_factor * self.absence

    def loaded(self, alpha: float, share: float) -> float:
        """The alpha of sketch and wire together: A (P + share·Q) - 1."""
        load = self.mean_factor + share * self.client_factor
        return alpha if load == 1 else (1 + alpha) * load - 1

    def added(self, *, alpha: float, K: int, eta: float, energy: float) -> dict[str, float]:
        """What a round adds to E|w - w*|², by cause; ``energy`` is mean_c|∇f_c|² at the optimum, as bounded."""
        A, P, Q, n = 1 + alpha, self.mean_factor, self.client_factor, self.clients
        steps = K / n + (A * P - 1) * K * harmonic(K) / n + A * Q * K * harmonic(K)
        return {
            "rounding of the clients' messages": eta**2 * K**2 * A * self.rounding_factor * energy,
            "absent clients": eta**2 * K**2 * A * P * self.absence * energy,
            "mini-batch noise": eta**2 * self.gradient**2 * steps,
            "privacy noise": eta**2 * K**2 * self._echo * self.release**2,
        }

    @property
    def _echo(self) -> float:
        return 1 + (self.downlink if self.echo is None else self.echo)


SILENT = Noise()


def client_energy(problem: Problem) -> tuple[float, float]:
    """(m, F) with mean_c|∇f_c(w)|² <= m·2L(f(w) - f*) + F for convex f_c.

    (1, zeta²) where the clients' spread is bounded by zeta everywhere, (1, 0) where all share a minimiser, else
    (2, 2 sigma_star²).
    """
    if problem.zeta is not None:
        return 1.0, problem.zeta**2
    return (2.0, 2 * problem.sigma_star**2) if problem.sigma_star else (1.0, 0.0)


def sampled(clients: int, population: int) -> float:
    """Rho of a uniform sample without replacement: (N - n)/(n (N - 1))."""
    demand(1 <= clients <= population, f"cannot hear {clients} of {population} clients")
    return (population - clients) / (clients * (population - 1)) if population > 1 else 0.0


@cache
def harmonic(K: int) -> float:
    """1 + 1/2 + ... + 1/K."""
    return math.fsum(1 / k for k in range(1, K + 1))
