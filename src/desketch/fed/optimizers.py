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
from collections.abc import Iterator, Mapping
from math import inf, sqrt
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from desketch.core.vectors import BLOCK, dot, norm
from desketch.errors import ConfigError, InputError
from desketch.fed.auto_step import AutoStep, round16
from desketch.fed.update import Update

__all__ = ["OPTIMIZERS", "ServerOptimizer", "check_momentum", "make_optimizer"]


class ServerOptimizer(ABC):
    """Turns broadcasts into steps of w; `apply` works in place and returns w."""

    name: str
    averages: ClassVar[bool] = True

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
        """Move w by eta_t p_t, in place and block by block: beside w, u and what is kept there is no vector of R^d."""
        factor = self.auto.observe(w, update, self._along if self._has_step else None) if self.auto else 1.0
        self.t += 1
        self.prepare(update.vector, factor)
        if self.auto and not self.unit:
            self.unit = self._length_ratio(update.vector, factor)
            absorbed = True
        else:
            absorbed = False
        if self.auto:
            self.eta = self.auto.eta * self.unit
        step = self.auto is not None and not self.derives_step
        s = self.tensors.setdefault("s", torch.empty_like(w)) if step else None
        kept = {name: tensor for name, tensor in self.tensors.items() if tensor.dim() and name != "s"}
        for place in _places(w.numel()):
            u, state = _times(update.vector[place], factor), {name: tensor[place] for name, tensor in kept.items()}
            if not absorbed:
                self.absorb(u, state)
            p = self.direction(u, state)
            w[place].add_(torch.mul(p, self.eta, out=None if s is None else s[place]))
        return w

    @property
    def last_step(self) -> Tensor | None:
        """s_t, the last step of w, which the automatic rule asks clients about; None before it and without the rule."""
        if not self._has_step:
            return None
        return self.tensors["s"] if "s" in self.tensors else torch.cat(list(self._steps()))

    @property
    def _has_step(self) -> bool:
        return self.auto is not None and ("m" in self.tensors if self.derives_step else "s" in self.tensors)

    def _steps(self) -> Iterator[Tensor]:
        """The blocks of s_t, as they were made, from what is kept."""
        if "s" in self.tensors:
            yield from torch.split(self.tensors["s"], BLOCK)
            return
        kept = {name: tensor for name, tensor in self.tensors.items() if tensor.dim()}
        for place in _places(self.tensors["m"].numel()):
            state = {name: tensor[place] for name, tensor in kept.items()}
            yield self.direction(state["m"], state) * self.eta

    def _along(self, u: Tensor) -> tuple[float, float]:
        """<u, s> and |s| of the last step s."""
        products = [(dot(part, s), norm(s)) for part, s in zip(torch.split(u, BLOCK), self._steps(), strict=True)]
        return sum(product for product, _ in products), sqrt(sum(length * length for _, length in products))

    def _length_ratio(self, u: Tensor, factor: float) -> float:
        """|u|/|p|, of the first update that has a length; takes it in."""
        kept = {name: tensor for name, tensor in self.tensors.items() if tensor.dim() and name != "s"}
        lengths = []
        for place in _places(u.numel()):
            part, state = _times(u[place], factor), {name: tensor[place] for name, tensor in kept.items()}
            self.absorb(part, state)
            lengths.append((norm(part), norm(self.direction(part, state))))
        u_norm, p_norm = (sqrt(sum(length * length for length in side)) for side in zip(*lengths, strict=True))
        return round16(u_norm / p_norm) if p_norm else 0.0

    def prepare(self, u: Tensor, factor: float) -> None:
        """Make room for what is kept, before the first update is taken in."""
        if self.keeps_mean and "m" not in self.tensors:
            self.tensors["m"] = torch.zeros_like(u)

    @property
    def keeps_mean(self) -> bool:
        """Whether there is a running mean m."""
        return self.beta > 0

    @property
    def derives_step(self) -> bool:
        """Whether the last step follows from what is kept, so that it need not be kept too."""
        return self.keeps_mean

    def absorb(self, u: Tensor, state: Mapping[str, Tensor]) -> None:
        """Take a block of u_t into the state, in place."""
        if "m" in state:
            state["m"].mul_(self.beta).add_(u * (1 - self.beta))

    @abstractmethod
    def direction(self, u: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """A block of p_t from that of u_t and of the state, which has taken it in."""

    def largest_direction(self, u: float, m: float) -> float:
        """What no |p| exceeds when no |u| does u and no |m| does m; infinite where there is no such simple bound."""
        return inf

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


class Sgd(ServerOptimizer):
    """Algorithm 1 as printed: w += eta_global u_t."""

    name = "sgd"
    averages: ClassVar[bool] = False

    @property
    def keeps_mean(self) -> bool:
        """It has no memory."""
        return False

    def direction(self, u: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return p = u."""
        return u

    def largest_direction(self, u: float, m: float) -> float:
        """The largest u."""
        return u


class Momentum(ServerOptimizer):
    """Heavy ball on the mean update."""

    name = "momentum"

    def direction(self, u: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return p = m / (1 - beta^t)."""
        return state.get("m", u) / _share(self.beta, self.t)

    def largest_direction(self, u: float, m: float) -> float:
        """The new m is between the old one and u."""
        return max(u, m) / _share(self.beta, self.t + 1)


class Nesterov(ServerOptimizer):
    """Momentum that looks one update ahead."""

    name = "nesterov"

    @property
    def derives_step(self) -> bool:
        """It has the update in it."""
        return False

    def direction(self, u: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return p = (beta m + (1 - beta) u) / (1 - beta^(t+1))."""
        return state.get("m", u).mul(self.beta).add_(u * (1 - self.beta)) / _share(self.beta, self.t + 1)

    def largest_direction(self, u: float, m: float) -> float:
        """A mean of the new m and u."""
        return max(u, m) / _share(self.beta, self.t + 2)


class Adam(ServerOptimizer):
    """Coordinate-wise scaled momentum (Reddi et al., "Adaptive federated optimization", ICLR 2021)."""

    name = "adam"
    beta2 = 0.99
    tau = 1e-3

    def prepare(self, u: Tensor, factor: float) -> None:
        """The floor is a share of the first update."""
        super().prepare(u, factor)
        if "v" not in self.tensors:
            self.tensors["v"] = torch.zeros_like(u)
            floor = round16(self.tau * norm(_times(u, factor)) / sqrt(u.numel()))
            self.tensors["floor"] = torch.tensor(floor).to(u)

    def absorb(self, u: Tensor, state: Mapping[str, Tensor]) -> None:
        """The means of u and of its square."""
        super().absorb(u, state)
        state["v"].mul_(self.beta2).add_((u * u).mul_(1 - self.beta2))

    def direction(self, u: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Return p = m^ / (sqrt(v^) + tau |u_1| / sqrt(d))."""
        m = state.get("m", u) / _share(self.beta, self.t)
        root = self._second_moment(state).double().sqrt().to(u)  # torch's float32 root may err
        return m / root.add_(self.tensors["floor"].clamp(min=1e-30))

    def _second_moment(self, state: Mapping[str, Tensor]) -> Tensor:
        return state["v"] / _share(self.beta2, self.t)


class AmsGrad(Adam):
    """Adam whose second moment never falls (Reddi, Kale, Kumar, "On the convergence of Adam and beyond", ICLR 2018)."""

    name = "amsgrad"

    def prepare(self, u: Tensor, factor: float) -> None:
        """One more vector."""
        super().prepare(u, factor)
        if "top" not in self.tensors:
            self.tensors["top"] = torch.zeros_like(u)

    def absorb(self, u: Tensor, state: Mapping[str, Tensor]) -> None:
        """The running maximum of v^ too."""
        super().absorb(u, state)
        torch.maximum(state["top"], super()._second_moment(state), out=state["top"])

    def _second_moment(self, state: Mapping[str, Tensor]) -> Tensor:
        return state["top"]


OPTIMIZERS: dict[str, type[ServerOptimizer]] = {c.name: c for c in (Sgd, Momentum, Nesterov, Adam, AmsGrad)}


def _places(d: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, d)) for start in range(0, d, BLOCK))


def _share(beta: float, t: int) -> float:
    """1 - beta^t, what a running mean has given out so far; to 16 bits, for libraries differ in the last of a power."""
    return round16(1 - beta**t)


def _times(u: Tensor, factor: float) -> Tensor:
    return u if factor == 1.0 else u * factor


def _default_beta(*, auto: bool, clients: float) -> float:
    """One memory is enough: none beside that of the clients, a quick one under the automatic step, else 0.9.

    The automatic step measures its direction against the next update, so a long memory would mislead it.
    """
    if clients:
        return 0.0
    return 0.5 if auto else 0.9


def check_momentum(name: str, beta: float | None) -> None:
    """Refuse a momentum that a user set for an optimiser that has none."""
    if beta and name in OPTIMIZERS and not OPTIMIZERS[name].averages:
        raise ConfigError(f"server optimiser {name} has no momentum, got {beta:g}; leave it out, or choose momentum")


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
