"""The privacy of a run as a file, ``privacy.json``: what was promised to whom, what was spent, what may be spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from desketch.core.files import read_sealed_json, sealed_json, write_durably
from desketch.errors import InputError, PrivacyError, RunError
from desketch.privacy.calibrate import Budget
from desketch.privacy.events import Ledger, check_delta

__all__ = ["PrivacyRecord", "read_configuration", "read_record", "write_record"]

# numbers a configuration may carry, at its top level or in its section "dp"
_CONFIGURED = ("examples", "batch", "local_steps", "rounds", "sampling_rate", "noise_multiplier", "delta", "epsilon")
_RENAMED = {"batch_size": "batch"}
_ADVICE = (
    "without it nobody knows what was released, so nothing more is: put its newest copy back (privacy.json and "
    "privacy.copy.json of {copies} hold the same), or start a new run and count this one's whole budget as spent"
)


@dataclass(frozen=True)
class PrivacyRecord:
    """What a run promises (``claim``: mechanism, unit, adjacency, sampler, observer), its ledger, delta and budget."""

    claim: Mapping[str, str]
    ledger: Ledger
    delta: float
    budget: Budget | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        budget = None if self.budget is None else asdict(self.budget)
        return {"claim": dict(self.claim), "ledger": self.ledger.to_dict(), "delta": self.delta, "budget": budget}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyRecord:
        """Rebuild a record; refuse what is not one."""
        try:
            budget = None if data["budget"] is None else Budget(**data["budget"])
            return cls(dict(data["claim"]), Ledger.from_dict(data["ledger"]), data["delta"], budget)
        except (KeyError, TypeError) as error:
            raise PrivacyError(f"this is not a privacy record ({error!r}); expected what write_record writes") from None


def write_record(path: Path, record: PrivacyRecord) -> None:
    """Write durably and whole, under its own SHA-256: a reader sees the old record or the new one."""
    write_durably(path, sealed_json(record.to_dict(), indent=2))


def read_record(path: Path) -> PrivacyRecord:
    """Read a record that `write_record` wrote; damage is an error, for what is left of a ledger says too little."""
    try:
        return PrivacyRecord.from_dict(read_sealed_json(path, _ADVICE.format(copies=path.parent)))
    except RunError as error:
        raise PrivacyError(str(error)) from None


def read_configuration(path: Path) -> dict[str, Any]:
    """Return the numbers an accountant needs from a run's configuration file, YAML, TOML or JSON.

    A client-level run samples its clients at rate ``fraction``; the number of examples of a client is a fact of the
    data, not of the configuration, and must be added by hand (``examples``).
    """
    parse = {".toml": _parse_toml}.get(path.suffix, _parse_yaml)
    data = _mapping(path, parse)
    section = data.get("dp")
    section = section if isinstance(section, Mapping) else {}
    merged = {_RENAMED.get(name, name): value for name, value in {**data, **section}.items()}
    if (merged.get("mechanism"), merged.get("unit") or "client") == ("sketch-clip", "client"):
        merged.setdefault("sampling_rate", merged.get("fraction", 1.0))
    return {name: _number(name, merged[name]) for name in _CONFIGURED if merged.get(name) is not None}


def _parse_yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


def _parse_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _number(name: str, value: Any) -> float:
    """Read YAML 1.1's strings such as 1e-5 as the numbers they are meant to be."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise InputError(f"{name} must be a number, got {value!r}") from None


def _mapping(path: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    try:
        data = parse(path.read_text())
    except Exception as error:  # each parser has its own tree of errors
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(data, Mapping):
        raise InputError(f"{path} holds {type(data).__name__}, expected a mapping of names to values")
    return data
