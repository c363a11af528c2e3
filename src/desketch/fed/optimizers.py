"""Server optimisers: how the de-sketched mean update u_t moves w, replayed alike by every replica.

Algorithm 1 is ``sgd``: w += eta_global u_t.  The others first turn u_t into a direction p_t, normalised so that
eta_global keeps its meaning (p_t = u_t when every u_t is equal, for sgd, momentum and nesterov):

    momentum   m = beta m + (1 - beta) u,                      p = m / (1 - beta^t)
    nesterov   m as above,                                     p = (beta m + (1 - beta) u) / (1 - beta^(t+1))
    adam       m as above, v = beta2 v + (1 - beta2) u^2,      p = m^ / (sqrt(v^) + tau |u_1| / sqrt(d))
    amsgrad    as adam with v^ replaced by its running maximum

and w += s_t, s_t = eta_t p_t.  eta_t is the number eta_global, or `desketch.fed.auto_step.AutoStep` when it is "auto".
State and step are functions of the broadcasts alone, so replicas that saw the same broadcasts are equal bit for bit.
Every product and every sum below is an operation of its own, rounded once (``docs/spec.md``, replica spec): torch fuses
``add(alpha=)`` and ``addcmul`` on some processors and not on others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor

from desketch.errors import InputError
from desketch.fed.auto_step import AutoStep, norm, round16
from desketch.fed.update import Update

__all__ = ["OPTIMIZERS", "ServerOptimizer", "make_optimizer"]


class ServerOptimizer(ABC):
    """Turns broadcasts into steps of w; `apply` works in place and returns w."""

    name: str

    def __init__(
        self,
        *,
        eta_global: float | Literal["auto"] = "auto",
        beta: float | None = None,
        client_momentum: float = 0.0,
    ) -> None:
        if eta_global != "auto" and not (isinstance(eta_global, int | float) and eta_global > 0):
            raise InputError(f"eta_global must be 'auto' or a number above 0, got {eta_global!r}")
        self.auto = AutoStep() if eta_global == "auto" else None
        self.eta = 0.0 if eta_global == "auto" else float(eta_global)
        self.beta = beta if beta is not None else _default_beta(auto=self.auto is not None, clients=client_momentum)
        if not 0 <= self.beta < 1:
            raise InputError(f"beta must be in [0, 1), got {self.beta}")
        self.t = 0
        self.unit = 0.0  # |u_1|/|p_1|: makes eta_1 a fraction of |u_1| for the scale-free directions too
        self.tensors: dict[str, Tensor] = {}

    def apply(self, w: Tensor, update: Update) -> Tensor:
        """Move w by eta_t p_t, in place."""
        self.t += 1
        if self.auto is None:
            return w.add_(self.direction(update.vector) * self.eta)
        bounded = self.auto.observe(w, update, self.tensors.get("s"))
        p = self.direction(bounded.vector)
        self.unit = self.unit or _length_ratio(bounded.vector, p)
        self.eta = self.auto.eta * self.unit
        s = self.tensors["s"] = p * self.eta
        return w.add_(s)

    @property
    def last_step(self) -> Tensor | None:
        """s_t, the last step of w, which the automatic rule asks clients about; None before it and without the rule."""
        return self.tensors.get("s")

    @abstractmethod
    def direction(self, u: Tensor) -> Tensor:
        """p_t from u_t."""

    def state_dict(self) -> dict[str, Any]:
        """Everything a replica needs to go on from here."""
        auto = self.auto.state_dict() if self.auto else None
        return {
            "name": self.name,
            "t": self.t,
            "eta": self.eta,
            "unit": self.unit,
            "auto": auto,
            "tensors": dict(self.tensors),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state["name"] != self.name:
            raise InputError(
                f"the state is of optimiser {state['name']!r}, this one is {self.name!r}; build the same one"
            )
        self.t, self.eta, self.unit = int(state["t"]), float(state["eta"]), float(state["unit"])
        self.tensors = {name: value.clone() for name, value in state["tensors"].items()}
        if self.auto:
            self.auto.load_state_dict(state["auto"])

    def _mean(self, u: Tensor) -> Tensor:
        """The running mean m, without its bias correction."""
        if self.beta == 0:
            return u
        m = self.tensors.get("m")
        m = u * (1 - self.beta) if m is None else m.mul_(self.beta).add_(u * (1 - self.beta))
        self.tensors["m"] = m
        return m


class Sgd(ServerOptimizer):
    """Algorithm 1 as printed: w += eta_global u_t."""

    name = "sgd"

    def direction(self, u: Tensor) -> Tensor:
        """Return p = u."""
        return u


class Momentum(ServerOptimizer):
    """Heavy ball on the mean update."""

    name = "momentum"

    def direction(self, u: Tensor) -> Tensor:
        """Return p = m / (1 - beta^t)."""
        return self._mean(u) / _share(self.beta, self.t)


class Nesterov(ServerOptimizer):
    """Momentum that looks one update ahead."""

    name = "nesterov"

    def direction(self, u: Tensor) -> Tensor:
        """Return p = (beta m + (1 - beta) u) / (1 - beta^(t+1))."""
        return self._mean(u).mul(self.beta).add_(u * (1 - self.beta)) / _share(self.beta, self.t + 1)


class Adam(ServerOptimizer):
    """Coordinate-wise scaled momentum (Reddi et al., "Adaptive federated optimization", ICLR 2021)."""

    name = "adam"
    beta2 = 0.99
    tau = 1e-3

    def direction(self, u: Tensor) -> Tensor:
        """Return p = m^ / (sqrt(v^) + tau |u_1| / sqrt(d))."""
        m = self._mean(u) / _share(self.beta, self.t)
        if "v" not in self.tensors:
            self.tensors["v"] = torch.zeros_like(u)
            self.tensors["floor"] = torch.tensor(round16(self.tau * norm(u) / sqrt(u.numel()))).to(u)
        v = self.tensors["v"].mul_(self.beta2).add_((u * u).mul_(1 - self.beta2))
        root = self._second_moment(v / _share(self.beta2, self.t)).double().sqrt().to(u)  # torch's float32 root may err
        return m / root.add_(self.tensors["floor"].clamp(min=1e-30))

    def _second_moment(self, v: Tensor) -> Tensor:
        return v


class AmsGrad(Adam):
    """Adam whose second moment never falls (Reddi, Kale, Kumar, "On the convergence of Adam and beyond", ICLR 2018)."""

    name = "amsgrad"

    def _second_moment(self, v: Tensor) -> Tensor:
        top = self.tensors.get("top")
        self.tensors["top"] = v if top is None else torch.maximum(top, v)
        return self.tensors["top"]


OPTIMIZERS: dict[str, type[ServerOptimizer]] = {c.name: c for c in (Sgd, Momentum, Nesterov, Adam, AmsGrad)}


def _share(beta: float, t: int) -> float:
    """1 - beta^t, what a running mean has given out so far; to 16 bits, for libraries differ in the last of a power."""
    return round16(1 - beta**t)


def _length_ratio(u: Tensor, p: Tensor) -> float:
    length = norm(p)
    return round16(norm(u) / length) if length else 0.0


def _default_beta(*, auto: bool, clients: float) -> float:
    """One memory is enough: none beside that of the clients, a quick one under the automatic step, else 0.9.

    The automatic step measures its direction against the next update, so a long memory would mislead it.
    """
    if clients:
        return 0.0
    return 0.5 if auto else 0.9


def make_optimizer(
    name: str = "momentum",
    *,
    eta_global: float | Literal["auto"] = "auto",
    beta: float | None = None,
    client_momentum: float = 0.0,
) -> ServerOptimizer:
    """Build the server optimiser of that name.

    beta defaults to 0 where clients average (``client_momentum`` above 0), to 0.5 under the automatic step, else 0.9.
    """
    if name not in OPTIMIZERS:
        raise InputError(f"unknown server optimiser {name!r}; choose one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name](eta_global=eta_global, beta=beta, client_momentum=client_momentum)
