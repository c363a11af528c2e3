"""AutoStep: the server step eta_t from the broadcasts alone, no tuning and no bytes.

De-sketching returns u = Rᵀy with |u|² about (d/b)|y|²: mostly noise, so the best step falls with sqrt(b/d), and how far
is learned.  Three parts, each a function of what is on the wire:

    start   eta_1 = sqrt(b/d) clip(|w0| / |y_1|, 1, 16): the first step is as long as w0, within limits;
    bound   u_t is multiplied by min(1, c / |y_t|): the first, largest updates would drown w0 in noise;
    learn   with q = <u_{t+1}, s_t> = <y_{t+1}, R_{t+1} s_t> and rho = sqrt(d/b) q / (|y_{t+1}| |s_t|),
            eta_{t+1} = eta_t exp(kappa g clip(rho, -2, 1)),  g = 1 / (1 + d/b²)
            (a hypergradient: the step was too short if the next update still points along it; g is the share of rho's
            variance that is signal).

Where clients send running means (`desketch.fed.client_momentum`), y lags behind the updates and <y, R s> would praise
every step that the mean already holds.  Clients then send <Δ_c, s_t> of the raw update as one more number, and

    learn   rho = sqrt(d/b) mean_c <Δ_c, s_t> / (|y_{t+1}| |s_t|),
            eta_{t+1} = eta_t exp(kappa (clip(rho, -2, 1) + past)),  past = 0.2 times the bits a number, at most 1.

There is no noise of de-sketching in this rho, so it can be held at another value than 0, where s_t ended at the minimum
along itself.  Steps that do are the best for the next loss and too short for the run: among noise they shrink with the
signal (Wu, Ren, Liao, Grosse, "Understanding short-horizon bias in stochastic meta-optimization", ICLR 2018).  So this
rule aims past the minimum, less far where a code of fewer bits leaves more noise (docs/training.md).

Norms and products are taken in float64 and eta is rounded to 16 significant bits, so that replicas on machines which
sum in another order still agree on every bit of w.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, frexp, inf, isfinite, ldexp, sqrt
from typing import Any

from torch import Tensor

from desketch.core.vectors import norm
from desketch.fed.update import Update

__all__ = ["AutoStep", "round16"]


Along = Callable[[Tensor], tuple[float, float]]


class AutoStep:
    """State of the rule: the current step, and the bound c that the first broadcast fixes."""

    kappa = 0.25
    longest_start = 16.0
    reach = 0.25  # c / |w0|
    past = 0.2  # how far below 0 rho is held, with one bit a number, where clients tell it of their raw updates

    def __init__(self) -> None:
        self.eta = 0.0
        self.bound = inf

    def observe(self, w: Tensor, update: Update, along: Along | None) -> float:
        """Learn eta from update t and the step s before it; return the factor that bounds the update.

        ``along`` gives <u, s> and |s|; it is None before the first step.
        """
        if self.eta == 0.0:
            self._start(norm(w), update)
        elif along is not None:
            self._learn(update, along)
        return 1.0 if update.norm <= self.bound else round16(self.bound / update.norm)

    def _start(self, w_norm: float, update: Update) -> None:
        if update.norm == 0.0:
            return
        ratio = min(max(w_norm / update.norm, 1.0), self.longest_start)
        self.eta = round16(ratio * sqrt(update.b / update.vector.numel()))
        self.bound = self.reach * w_norm or inf

    def _learn(self, update: Update, along: Along) -> None:
        if update.norm == 0.0:
            return
        d, b = update.vector.numel(), update.b
        if update.along is not None:
            rho, g, past = update.along / update.norm, 1.0, self.past * update.bits
        else:
            product, s_norm = along(update.vector)
            rho = sqrt(d / b) * product / (update.norm * s_norm) if s_norm else 0.0
            g, past = 1 / (1 + d / b**2), 0.0
        self.eta = round16(self.eta * exp(self.kappa * g * (min(max(rho, -2.0), 1.0) + past)))

    def state_dict(self) -> dict[str, Any]:
        """The rule's two numbers."""
        return {"eta": self.eta, "bound": None if self.bound == inf else self.bound}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.eta = float(state["eta"])
        self.bound = inf if state["bound"] is None else float(state["bound"])


def round16(x: float) -> float:
    """Round to 16 significant bits."""
    if not isfinite(x):
        return x  # whoever applies it checks what came of it
    mantissa, exponent = frexp(x)
    return ldexp(round(mantissa * 65536), exponent - 16)
