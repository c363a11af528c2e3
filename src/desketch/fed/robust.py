"""Robust rules: what the server makes of n sketches when up to f of their senders lie.

A rule is a pure function of the rows s_1..s_n (R^b, float64) and their weights p_i; all of them are the weighted mean
when all rows agree.  med is the lower median, clip(x, r) = x min(1, r / |x|):

==================  ==================================================================================================
``none``            Σ p_i s_i / Σ p_i
``norm-bound``      the mean of clip(s_i, factor x the running median of accepted norms)        (`fed/aggregation.py`)
``rfa``             argmin_v Σ p_i |s_i - v|, by smoothed Weiszfeld steps
                    (Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022)
``krum``            the mean of the m rows with the least Σ |s_i - s_j|² over the n - f - 2 nearest j
                    (Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017)
``centred-clip``    v <- v + Σ p_i clip(s_i - v, tau) / Σ p_i, a few times
                    (Karimireddy, He, Jaggi, "Learning from history", ICML 2021)
``trimmed-mean``    in every coordinate, the mean without the ⌊beta n⌋ least and greatest
                    (Yin, Chen, Ramchandran, Bartlett, ICML 2018)
==================  ==================================================================================================

All but the last depend on norms and distances alone: they commute with every rotation Q, rule(Q s) = Q rule(s), and a
sketch keeps what they look at up to its distortion (``docs/robust.md``).  The trimmed mean looks at coordinates, which
a sketch mixes: a heuristic here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor

from desketch.errors import ConfigError
from desketch.wire.rows import Rows

__all__ = [
    "RULES",
    "CentredClip",
    "GeometricMedian",
    "Krum",
    "Mean",
    "NormBound",
    "Rule",
    "TrimmedMean",
    "bounded_mean",
    "check_cohort",
    "clip_to",
    "lower_median",
    "parse_rule",
    "rule_of",
    "weighted_mean",
]


FACTOR = 3.0
"""Times the running median of norms: honest updates stay below it, see ``docs/robust.md``."""


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """How rows become one row; every rule but ``none`` works on rows that the norm bound has seen."""

    name: ClassVar[str]
    mean: ClassVar[bool] = False  # whether `combine` is the weighted mean of all rows

    @abstractmethod
    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """(n, b) and (n,), n >= 1, in float64, to (b,)."""

    def kept(self, values: Tensor) -> list[int]:
        """The rows that can have a say: all, unless the rule selects."""
        return list(range(len(values)))

    def least(self) -> int:
        """The fewest rows that the rule's promise needs."""
        return 1

    def without(self, found: int) -> Rule:
        """The rule for the rows that are left when ``found`` bad ones are out already."""
        return self

    def bound(self) -> float | None:
        """The factor of the norm bound in front of the rule; None for no bound."""
        return FACTOR

    @property
    def spec(self) -> str:
        """The rule as text that `parse_rule` reads: a name and all its settings."""
        settings = ",".join(
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) is not None
        )
        return f"{self.name}:{settings}" if settings else self.name


@dataclass(frozen=True, kw_only=True)
class Mean(Rule):
    """The plain weighted mean: one client can move it anywhere."""

    name = "none"
    mean = True

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean."""
        return weighted_mean(values, weights)

    def bound(self) -> None:
        """No bound."""


@dataclass(frozen=True, kw_only=True)
class NormBound(Rule):
    """The default: no row counts for more than ``factor`` times the running median of accepted norms."""

    factor: float = FACTOR
    name = "norm-bound"
    mean = True

    def __post_init__(self) -> None:
        _check(self.factor >= 1, f"factor multiplies a median norm and is at least 1, got {self.factor}")

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean of rows that are bounded already."""
        return weighted_mean(values, weights)

    def bound(self) -> float:
        """The rule's own factor."""
        return self.factor


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Rule):
    """RFA: ``iterations`` Weiszfeld steps, distances smoothed at ``nu``."""

    nu: float = 1e-6
    iterations: int = 16
    name = "rfa"

    def __post_init__(self) -> None:
        _check(0 < self.nu < 1, f"nu smooths a distance and lies in (0, 1), got {self.nu}")
        _check(self.iterations >= 1, f"iterations counts Weiszfeld steps, at least 1, got {self.iterations}")

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """Repeat v <- Σ β_i s_i / Σ β_i with β_i = p_i / max(nu, |s_i - v|)."""
        v = _start(values, weights)
        for _ in range(self.iterations):
            v = weighted_mean(values, weights / _norms(values - v).clamp(min=self.nu))
        return v


@dataclass(frozen=True, kw_only=True)
class Krum(Rule):
    """Multi-Krum: the ``num_nodes_to_select`` rows (default: n - f) nearest to their neighbours, f malicious."""

    num_malicious_nodes: int
    num_nodes_to_select: int | None = None
    name = "krum"

    def __post_init__(self) -> None:
        f, m = self.num_malicious_nodes, self.num_nodes_to_select
        _check(f >= 0, f"num_malicious_nodes counts clients, got {f}")
        _check(m is None or m >= 1, f"num_nodes_to_select counts clients, at least 1, got {m}")

    def least(self) -> int:
        """2 f + 3: below that Krum promises nothing."""
        return max(2 * self.num_malicious_nodes + 3, self.num_nodes_to_select or 1)

    def without(self, found: int) -> Krum:
        """Fewer are left to find: else a liar could end rounds by being caught."""
        return replace(self, num_malicious_nodes=max(0, self.num_malicious_nodes - found))

    def kept(self, values: Tensor) -> list[int]:
        """The selected rows; equal scores are told apart by place."""
        n, f = len(values), self.num_malicious_nodes
        squares = torch.stack([(values - row).square().sum(1) for row in values])
        near = squares.sort(dim=1).values[:, 1 : max(1, n - f - 2) + 1]  # the first is the row itself
        order = near.sum(1).argsort(stable=True)
        return sorted(order[: self.num_nodes_to_select or max(1, n - f)].tolist())

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean of the selected rows."""
        chosen = self.kept(values)
        return weighted_mean(values[chosen], weights[chosen])


@dataclass(frozen=True, kw_only=True)
class CentredClip(Rule):
    """Centred clipping around the round's own centre: no row pulls it by more than ``tau``.

    The paper's centre is the last round's result.  R_t changes every round, and R_t R_{t-1}ᵀ y is mostly noise, so the
    centre starts anew in every round, at the mean of rows clipped to their median norm.  Without ``tau`` the radius is
    the median distance from the centre.
    """

    tau: float | None = None
    iterations: int = 8
    name = "centred-clip"

    def __post_init__(self) -> None:
        _check(self.tau is None or self.tau > 0, f"tau is a radius above 0, got {self.tau}")
        _check(self.iterations >= 1, f"iterations counts clipping steps, at least 1, got {self.iterations}")

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """Repeat v <- v + Σ p_i clip(s_i - v, tau) / Σ p_i."""
        v = _start(values, weights)
        for _ in range(self.iterations):
            away = values - v
            v = v + weighted_mean(clip_to(away, self.tau or lower_median(_norms(away))), weights)
        return v


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Rule):
    """The mean of every coordinate without its ⌊beta n⌋ least and greatest; every client weighs alike."""

    beta: float = 0.2
    name = "trimmed-mean"

    def __post_init__(self) -> None:
        _check(0 <= self.beta < 0.5, f"beta is the share cut off each tail, in [0, 0.5), got {self.beta}")

    def combine(self, values: Tensor, weights: Tensor) -> Tensor:
        """Sort, cut, average."""
        n = len(values)
        cut = int(self.beta * n)
        return values.sort(dim=0).values[cut : n - cut].mean(0)


RULES: dict[str, type[Rule]] = {r.name: r for r in (Mean, NormBound, GeometricMedian, Krum, CentredClip, TrimmedMean)}


def parse_rule(spec: str | Rule | None) -> Rule:
    """``krum:num_malicious_nodes=4,num_nodes_to_select=15`` as a rule; None is the default."""
    if spec is None or isinstance(spec, Rule):
        return spec or NormBound()
    name, _, settings = str(spec).partition(":")
    if name not in RULES:
        raise ConfigError(f"robust: got {name!r}, expected one of {', '.join(RULES)}, e.g. trimmed-mean:beta=0.2")
    kind = RULES[name]
    known = {f.name: str(f.type) for f in fields(kind)}
    given: dict[str, Any] = {}
    for item in filter(None, settings.split(",")):
        key, _, value = item.partition("=")
        if key not in known:
            takes = ", ".join(known) or "nothing"
            raise ConfigError(f"robust: rule {name} takes {takes}, got {item!r}")
        given[key] = _number(name, key, value, whole=known[key].startswith("int"))
    try:
        return kind(**given)
    except TypeError as error:
        missing = str(error).partition(":")[2].strip()
        raise ConfigError(f"robust: rule {name} needs {missing}, e.g. {name}:{missing.strip(chr(39))}=4") from None


def rule_of(spec: str | Rule | None, *, private_mean: bool) -> Rule:
    """The rule of a run; ``private_mean``: whether a client-level mechanism forms the mean, which then is the rule."""
    if not private_mean:
        return parse_rule(spec)
    if spec is not None and not isinstance(parse_rule(spec), Mean):
        raise ConfigError(
            f"robust: {parse_rule(spec).name} with client-level privacy: the noise is made for the sum of sketches "
            "that are clipped to C each, which is a norm bound already, and no rule that looks at all clients has that "
            "sensitivity; leave robust out"
        )
    return Mean()


def check_cohort(rule: Rule, *, clients: int, fraction: float) -> None:
    """Refuse a rule whose promise no round of the run could meet."""
    cohort = max(1, round(fraction * clients))
    if cohort < rule.least():
        raise ConfigError(
            f"robust: {rule.spec} needs {rule.least()} updates in a round, {cohort} clients are asked; ask more, or "
            "expect fewer malicious ones"
        )


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Σ weights_i values_i / Σ weights_i over the rows, in float64: shares first, so that nothing overflows."""
    return _shares(weights) @ values.double()


def _shares(weights: Tensor) -> Tensor:
    return weights.double() / weights.double().sum()


def bounded_mean(rows: Rows, weights: Tensor, norms: Tensor, radius: float) -> Tensor:
    """``weighted_mean(clip_to(rows, radius), weights)`` of rows whose norms are known, a few rows at a time.

    Thousands of rows at once, or in float64, would cost more in memory than in arithmetic.
    """
    share = _shares(weights)
    if (norms > radius).any():
        share = share * (radius / norms).clamp(max=1.0)
    return torch.from_numpy(rows.weighted_sum(share.numpy()))


def clip_to(values: Tensor, radius: float) -> Tensor:
    """Rows no longer than ``radius``; a row that is not longer keeps every bit."""
    norms = _norms(values)
    long = norms > radius
    if not long.any():
        return values
    return torch.where(long[:, None], values * (radius / torch.where(long, norms, 1.0))[:, None], values)


def lower_median(numbers: Tensor) -> float:
    """The ⌈n/2⌉-th smallest: with two numbers, the smaller."""
    return float(numbers.double().median())  # torch's median is the lower one


def _start(values: Tensor, weights: Tensor) -> Tensor:
    """The mean of rows clipped to their median norm: within reach of the honest rows, however long the others are."""
    return weighted_mean(clip_to(values, lower_median(_norms(values))), weights)


def _norms(values: Tensor) -> Tensor:
    return torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)


def _number(rule: str, key: str, value: str, *, whole: bool) -> float:
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f"robust: {key} of rule {rule} is {kind}, got {value!r}")
    return number


def _check(good: bool, message: str) -> None:
    if not good:
        raise ConfigError(f"robust: {message}")
