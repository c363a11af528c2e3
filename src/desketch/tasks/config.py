"""RunConfig: everything that decides a run, in one frozen record; from a YAML or TOML file, flags, or both.

Field names are the command-line flags with underscores.  Unknown names are refused with a suggestion; nothing about
privacy has a default.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from desketch.core.files import sealed_yaml, write_durably
from desketch.errors import ConfigError
from desketch.privacy.settings import PerStep, PrivacySettings, SketchClip
from desketch.sketches import FAMILIES
from desketch.tasks.config_file import read_settings
from desketch.wire import CODEC_TABLE, Wire

__all__ = ["DpConfig", "RunConfig"]

# fields that do not change what is computed in a round: a run may be resumed with other values
_FREE = frozenset({"rounds", "out", "evaluate_every", "checkpoint_every", "tensorboard", "capture", "engine", "device"})
_FLAGS = {"mechanism": "dp per-step or --dp sketch-clip"}  # where a flag has another name than its field


class _Strict(BaseModel):
    """Frozen, and every complaint is a `ConfigError` that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, values: Any) -> Any:
        unknown = [name for name in values if name not in cls.model_fields] if isinstance(values, Mapping) else []
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r}; {cls._hint(unknown[0])}")
        return values

    @classmethod
    def _hint(cls, unknown: str) -> str:
        close = difflib.get_close_matches(unknown, cls.model_fields, n=1, cutoff=0.5)
        return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(cls.model_fields)}"


class DpConfig(_Strict):
    """Differential privacy of a run: delta and clip must be given, and epsilon or the noise multiplier (or both)."""

    mechanism: Literal["per-step", "sketch-clip"] = Field(description="where the noise is added")
    unit: Literal["client", "example"] | None = Field(None, description="what is protected; default by mechanism")
    delta: float = Field(gt=0, lt=1, description="delta of the guarantee")
    clip: float = Field(gt=0, description="norm bound of one unit's contribution")
    epsilon: float | None = Field(None, gt=0, description="budget, enforced before every release")
    noise_multiplier: float | None = Field(None, gt=0, description="noise std over sensitivity; else calibrated")
    noise_by: Literal["server", "clients"] = Field("server", description="who adds client-level noise")
    not_private_seed: int | None = Field(
        None, description="TESTING ONLY: reproducible noise, marks the run NOT PRIVATE"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("dp needs epsilon (a budget) or noise_multiplier, or both; there is no default")
        if self.mechanism == "per-step" and self.unit == "client":
            raise ValueError("per-step noise protects examples; for unit 'client' use mechanism 'sketch-clip'")
        return self

    @property
    def settings(self) -> PrivacySettings:
        """The same as the API takes it."""
        common = self.model_dump(include={"clip", "delta", "epsilon", "noise_multiplier", "not_private_seed"})
        if self.mechanism == "per-step":
            return PerStep(**common)
        return SketchClip(**common, unit=self.protects, noise_by=self.noise_by)

    @property
    def by_client(self) -> bool:
        """Whether the server's mean itself is the private release."""
        return self.mechanism == "sketch-clip" and self.protects == "client"

    @property
    def protects(self) -> Literal["client", "example"]:
        """The unit of privacy, with the mechanism's own as default."""
        return self.unit or ("client" if self.mechanism == "sketch-clip" else "example")


class RunConfig(_Strict):
    """One run of Algorithm 1 or 2."""

    # what is learnt
    task: str = Field("digits", description="digits, idx:FOLDER, npz:FILE, csv:FILE or text:FILE")
    label: str | None = Field(
        None, description="label column of a CSV file, or several: a,b,c (multi-label); default: the last"
    )
    goal: Literal["classification", "regression", "multilabel"] | None = Field(
        None, description="what the labels ask for; default: several are multilabel, numbers not whole regression"
    )
    level: Literal["char", "byte"] = Field("char", description="symbols of a text: its characters, or bytes")
    context: int = Field(64, ge=1, description="symbols of a text that a model sees at once")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training set kept for validation")
    model: str = Field(
        "mlp:128", description="softmax, mlp:H, mlp-tanh:H, cnn, lenet, gpt:LAYERSxWIDTH or module:function"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of initial weights, partition, shuffles and the public key")
    # who takes part
    clients: int = Field(20, ge=1, description="N")
    partition: str = Field("dirichlet:0.5", description="iid, dirichlet:A, shards:K or column:NAME")
    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients asked in a round")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of asked clients that never answer")
    straggler: float = Field(0.0, ge=0, lt=1, description="rate of asked clients that answer too late")
    weighting: Literal["examples", "uniform"] = Field("examples", description="weight of a client's update")
    # what a client does
    rounds: int = Field(60, ge=1, description="T")
    local_steps: int = Field(20, ge=1, description="K")
    eta_local: float = Field(0.1, gt=0, description="step size of the local steps")
    batch_size: int | None = Field(32, ge=1, description="examples a local step; full (or null): the full gradient")
    # what crosses the wire
    family: str = Field("srht", description="sketch family")
    family_options: dict[str, Any] = Field(
        default_factory=dict, description="options of the family, e.g. nnz: 4 or transform: fourier"
    )
    compression: float = Field(30.0, ge=1, description="d / b")
    b: int | None = Field(None, ge=1, description="sketch size; overrides compression")
    codec: str = Field(
        "sign1", description="numbers on the way up: f32, f16, int8, int4, sign1, trellis1, trellis2 or trellis3"
    )
    codec_down: str | None = Field(None, description="numbers on the way down; default: as on the way up")
    # what the server does
    server_optimizer: Literal["sgd", "momentum", "nesterov", "adam", "amsgrad"] = Field(
        "momentum", description="server optimiser"
    )
    eta_global: float | Literal["auto"] = Field("auto", description="server step size, or auto")
    momentum: float | None = Field(
        None, ge=0, lt=1, description="beta; default 0.9, 0.5 under the automatic step, 0 with client momentum"
    )
    client_momentum: float | Literal["auto"] = Field(
        "auto",
        description="clients send the running mean of their updates with this beta; 0: each update as it is; auto: 0.8 "
        "with at most 5 local steps, 0.65 with at most 20, where all clients are asked, without dp and topology",
    )
    average: int | Literal["all", "local"] = Field(
        10,
        description="evaluate the mean of the last n w, of all, or of all local iterates (w-bar)",
    )
    robust: str | None = Field(
        None,
        description="how updates are averaged: norm-bound:factor=F, rfa, krum:num_malicious_nodes=F, centred-clip, "
        "trimmed-mean:beta=B or none; default norm-bound",
    )
    dp: DpConfig | None = Field(None, description="differential privacy; none when absent")
    # without a server
    topology: str | None = Field(None, description="without a server: ring, grid, regular:4, ... or file:FILE")
    protocol: Literal["tree", "gossip"] = Field("tree", description="exact averaging over a tree, or gossip")
    gossip_steps: int | None = Field(None, ge=1, description="gossip exchanges a round; default by the graph")
    node_failures: float = Field(0.0, ge=0, lt=1, description="rate of nodes that are down in a round")
    edge_failures: float = Field(0.0, ge=0, lt=1, description="rate of edges that are down in a round")
    # how it is run
    engine: Literal["in-process", "flower-sim"] = Field("in-process", description="what moves the bytes")
    device: str = Field("cpu", description="torch device")
    evaluate_every: int = Field(1, ge=1, description="rounds between evaluations")
    checkpoint_every: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="rounds between checkpoints; auto: 10, and where one takes over a second, 20 times that long",
    )
    capture: tuple[int, ...] = Field((), description="rounds whose frames are written to the run folder")
    tensorboard: bool = Field(False, description="also write TensorBoard events")
    out: str | None = Field(None, description="run folder")

    @field_validator("family", "codec", "codec_down")
    @classmethod
    def _one_of_the_table(cls, value: str | None, info: Any) -> str | None:
        table = FAMILIES if info.field_name == "family" else tuple(CODEC_TABLE)
        if value is not None and value not in table:
            raise ValueError(f"got {value!r}, expected one of {', '.join(table)}")
        return value

    @field_validator("robust")
    @classmethod
    def _rule(cls, value: str | None) -> str | None:
        if value is None:
            return None
        from desketch.fed.robust import parse_rule  # here, since it brings torch along

        return parse_rule(value).spec

    @field_validator("batch_size", mode="before")
    @classmethod
    def _full_gradient(cls, value: Any) -> Any:
        return None if value == "full" else value

    @field_validator("average")
    @classmethod
    def _some_rounds(cls, value: int | str) -> int | str:
        if not isinstance(value, str) and value < 1:
            raise ValueError(f"got {value}, expected at least 1 round, all, or local; 1 is the last round alone")
        return value

    @field_validator("capture")
    @classmethod
    def _rounds_count_from_one(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(t < 1 for t in value):
            raise ValueError(f"rounds count from 1, got {', '.join(map(str, value))}")
        return value

    @classmethod
    def _hint(cls, unknown: str) -> str:
        if unknown in DpConfig.model_fields:
            return f"privacy has its own section: dp.{unknown}, or --{unknown.replace('_', '-')} on the command line"
        return super()._hint(unknown)

    @field_validator("client_momentum")
    @classmethod
    def _share_of_the_past(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0 <= value < 1:
            raise ValueError(f"got {value}, expected auto or a number in [0, 1); 0 is off")
        return value

    @field_validator("eta_global")
    @classmethod
    def _positive_step(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and value <= 0:
            raise ValueError(f"got {value}, expected a positive number or auto")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        by_example = self.dp is not None and (self.dp.mechanism, self.dp.protects) == ("sketch-clip", "example")
        if by_example and self.local_steps != 1:
            raise ValueError(f"example-level sketch-clip needs local_steps 1, got {self.local_steps}; or use per-step")
        if self.average == "local" and (self.engine != "in-process" or self.topology or self.dp):
            raise ValueError(
                "average local needs every client's local iterates: only the in-process engine has them, nobody does "
                "without a server, and with dp they are what must not be released; use average all or a number"
            )
        if self.dp is not None and self.dp.protects == "client" and self.fraction < 1 and self.capture:
            raise ValueError(
                "captured frames say who was asked, which client-level privacy with fraction < 1 needs to be secret: "
                "leave capture out, or set fraction 1"
            )
        self._check_task()
        if self.momentum and self.server_optimizer == "sgd":
            raise ValueError(f"server_optimizer sgd has no momentum, got {self.momentum:g}: drop it, or take momentum")
        if self.robust is not None:
            self._check_robust(self.robust)
        if self.client_momentum not in ("auto", 0):
            self.client_beta()
        if self.topology is None and (self.protocol != "tree" or self.gossip_steps or self._failing):
            raise ValueError("protocol, gossip_steps and failure rates are settings of a topology: set topology too")
        if self.topology is not None and (self.dp or self.capture):
            raise ValueError("a topology has no server to speak of, so dp and capture are refused with it: drop one")
        if self.topology is not None and (self.fraction < 1 or self.dropout or self.straggler):
            raise ValueError(
                "fraction, dropout and straggler need a server; with a topology use node_failures and edge_failures"
            )
        return self

    def _check_task(self) -> None:
        """Refuse what only another kind of task takes; here and not in `load_task`, as all fields are in every file."""
        kind, fields = self.task.partition(":")[0], type(self).model_fields
        if self.label is not None and kind != "csv":
            raise ValueError(
                f"label names columns of a task csv:FILE, got label {self.label!r} of {self.task}: drop it"
            )
        for name in ("level", "context"):
            if kind != "text" and (value := getattr(self, name)) != fields[name].default:
                raise ValueError(f"{name} is a setting of a task text:FILE, got {name} {value} of {self.task}: drop it")

    def _check_robust(self, spec: str) -> None:
        """Refuse a rule that this run could not apply."""
        from desketch.fed.robust import check_cohort, parse_rule, rule_of

        rule = parse_rule(spec)
        if self.topology is not None and rule.bound() is not None:
            raise ValueError("robust rules need a server, which sees all updates apart: leave out robust or topology")
        rule_of(rule, private_mean=self.dp is not None and self.dp.by_client)
        check_cohort(rule, clients=self.clients, fraction=self.fraction)

    @property
    def _failing(self) -> bool:
        return self.node_failures > 0 or self.edge_failures > 0

    @classmethod
    def load(cls, path: str | Path | None = None, **settings: Any) -> Self:
        """Read a file (if given), lay ``settings`` over it (``None`` means: not set; ``dp`` merges), and check."""
        values = {} if path is None else read_settings(Path(path))
        given = {name: value for name, value in settings.items() if value is not None}
        if isinstance(given.get("dp"), Mapping):
            own = {name: value for name, value in given["dp"].items() if value is not None}
            base = values.get("dp")
            given["dp"] = {**(base if isinstance(base, Mapping) else {}), **own} or None
        return cls(**values | given)

    def save(self, path: str | Path) -> None:
        """Write the configuration as YAML, atomically."""
        write_durably(Path(path), self.sealed())

    def sealed(self) -> bytes:
        """The configuration as a YAML file whose first line, a comment, is its checksum."""
        return sealed_yaml(self.to_yaml())

    def to_yaml(self) -> str:
        """Every field, in the order of the class."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def sketch_size(self, d: int) -> int:
        """The b of a model with d parameters."""
        return self.wire.sketch_size(d)

    @property
    def wire(self) -> Wire:
        """What every message is made of."""
        return Wire(
            family=self.family,
            compression=self.compression,
            b=self.b,
            codec=self.codec,
            codec_down=self.codec_down,
            options=self.family_options,
        )

    def client_beta(self, *, d: int = 0) -> float:
        """The beta of the clients' running means of d numbers in this run, 0 for none."""
        from desketch.fed.client_momentum import client_beta  # here, since it brings torch along

        return client_beta(
            self.client_momentum,
            local_steps=self.local_steps,
            fraction=self.fraction,
            numbers=self.clients * d,
            privacy=self.dp.settings if self.dp else None,
            topology=self.topology is not None,
        )

    def identity(self) -> str:
        """SHA-256 over the fields that decide a round's result; equal for runs that may resume one another."""
        fields = self.model_dump(mode="json", exclude=set(_FREE))
        return hashlib.sha256(yaml.safe_dump(fields, sort_keys=True).encode()).hexdigest()

    def differences(self, other: RunConfig) -> list[str]:
        """The settings by which two runs may not resume one another, as ``name: there -> here``."""
        here, there = (config.model_dump(mode="json", exclude=set(_FREE)) for config in (self, other))
        return [f"{name}: {there[name]} -> {here[name]}" for name in here if here[name] != there[name]]

    @property
    def task_options(self) -> dict[str, Any]:
        """What `load_task` takes beside the task's name."""
        names = ("validation", "seed", "label", "group", "goal", "level", "context")
        return {name: getattr(self, name) for name in names}

    @property
    def group(self) -> str | None:
        """The column that tells clients apart, when the partition is ``column:NAME``."""
        kind, _, name = self.partition.partition(":")
        return name if kind == "column" else None


def _explain(error: ValidationError) -> str:
    """One line per wrong field: where, why, what was got."""
    lines = []
    for item in error.errors(include_url=False):
        where = ".".join(
            str(part) for part in item["loc"] if not str(part).startswith(("literal", "float", "constrained"))
        )
        reason = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":  # only privacy has settings without a default
            name = str(item["loc"][-1])
            reason = f"not given; set dp.{name}, or --{_FLAGS.get(name, name)} on the command line"
        got = "" if item["type"] == "value_error" or isinstance(item["input"], dict) else f" (got {item['input']!r})"
        lines.append(f"{where}: {reason}{got}" if where else f"{reason}{got}")
    return "; ".join(dict.fromkeys(lines))
