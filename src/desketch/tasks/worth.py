"""Worth: whether communicating paid in a run, told by a client that took the same local steps alone.

No message and no other client can say what a client would have reached by itself; so one (of ten, at most three) is
trained again without any byte, on the batches it had, until a tenth of the run's local work is done, and judged on the
validation set beside the run's own model after as many rounds.  With the error e = 1 - metric (or the metric itself
where less is better),

    gain = 1 - e_together / e_alone,

and below `LEAST_GAIN` the advice is not to sketch here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from desketch.core.metrics import METRICS
from desketch.fed.alone import followed, train_alone
from desketch.fed.engines import make_engine
from desketch.fed.iterates import make_average
from desketch.tasks.federation import Setup

__all__ = ["LEAST_GAIN", "Worth", "measure_worth"]

LEAST_GAIN = 0.05
SHARE = 0.1  # of the run's local work
MOST = 3


@dataclass(frozen=True)
class Worth:
    """The metric on the validation set after ``round`` rounds: of ``clients`` alone, in the mean, and of the run."""

    metric: str
    alone: float
    together: float
    clients: int
    round: int

    @property
    def gain(self) -> float:
        """The part of a lone client's error that communicating removed; below 0 it added to it."""
        alone, together = (1 - v if METRICS[self.metric].higher else v for v in (self.alone, self.together))
        return 1 - together / alone if alone > 0 else 0.0

    @property
    def pays(self) -> bool:
        """Whether that is enough to communicate for."""
        return self.gain >= LEAST_GAIN

    def sentence(self) -> str:
        """The finding and the advice in words."""
        metric = METRICS[self.metric]
        who = "one client" if self.clients == 1 else f"{self.clients} clients"
        found = (
            f"{who} alone, with no byte sent, had {metric.show(self.alone)} validation {metric.title} after the local "
            f"steps of {self.round} round{'s' * (self.round != 1)}, this run {metric.show(self.together)}"
        )
        if self.pays:
            return f"{found}: communicating removed {self.gain:.0%} of the error"
        brought = f"added {-self.gain:.0%} to" if self.gain < 0 else f"removed only {self.gain:.0%} of"
        return (
            f"{found}: communicating {brought} the error; do not sketch here: train alone, or see with desketch "
            "compare what less compression, more rounds or another method bring"
        )

    def row(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {**asdict(self), "gain": self.gain, "pays": self.pays, "advice": self.sentence()}


def measure_worth(setup: Setup, rows: Sequence[Mapping[str, Any]]) -> Worth | None:
    """Train alone beside a finished run; None where it cannot be judged.

    That is without a validation set, with a single client, and under privacy: a model trained without noise would be
    one more release.
    """
    config, n = setup.config, len(setup.clients)
    metric = setup.task.goal.metric.name
    who = followed(n, most=max(1, min(MOST, round(SHARE * n))))
    last = int(SHARE * n * len(rows) / len(who) + 1e-9)
    judged = [row for row in rows if row["round"] <= last and row.get(f"val_{metric}") is not None]
    if config.dp or n < 2 or not judged:
        return None
    sample = setup.clients[0].x[:2], setup.clients[0].y[:2]
    average = 1 if config.average == "local" else config.average
    averages = [make_average(average, d=setup.model.d) for _ in who]
    rounds = train_alone(setup.clients, make_engine(setup.model, sample), setup.work, setup.attendance, who=who)
    for _, models in zip(range(judged[-1]["round"]), rounds, strict=False):
        for mean, w in zip(averages, models, strict=True):
            mean.add(w)
    ends = [mean.of(w) for mean, w in zip(averages, models, strict=True)]
    x, y = setup.task.x_val, setup.task.y_val
    alone = fmean(setup.task.goal.evaluate(setup.model, w, x, y)[metric] for w in ends)
    return Worth(metric, alone, judged[-1][f"val_{metric}"], len(who), judged[-1]["round"])
