"""Promise: the privacy of a run whose parties are apart; `serve` announces it, every client of `join` holds it to that.

Its words are part of the run's name, so a client notices a server that means something else before anything leaves.
Who protects whom decides who keeps the books: noise at the client (`PerStep`, `SketchClip(unit="example")`) is
calibrated and charged by each client for its own data, and the server has no account; sketches of whole clients are
clipped there and covered by the server's noise, and both sides charge every round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from desketch.errors import ConfigError, PrivacyError
from desketch.fed.mechanism import Privacy
from desketch.privacy.planning import RunShape, plan_private_run
from desketch.privacy.settings import PrivacySettings
from desketch.session.agreement import Agreement

__all__ = ["Promise"]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The mechanism, T, and for privacy of whole clients their number N and the share q asked in a round."""

    privacy: PrivacySettings
    rounds: int
    clients: int | None = None
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.by_client and self.clients is None:
            raise ConfigError("privacy of whole clients is over N of them; give clients=N, as the server has it")

    @property
    def by_client(self) -> bool:
        """Whether whole clients are protected."""
        return self.privacy.unit == "client"

    @property
    def words(self) -> str:
        """Equal on both sides; a seed of noise for tests is nobody else's business."""
        cohort = f", {self.clients} clients at {self.fraction:g}" if self.by_client else ""
        return f"private: {replace(self.privacy, not_private_seed=None)}{cohort}"

    def name(self, run: str) -> str:
        """The name of a run with this promise."""
        return f"{run}, {self.words}"

    def check(self, agreement: Agreement) -> None:
        """Refuse a server that promises something else."""
        if not agreement.name.endswith(f", {self.words}") or agreement.rounds != self.rounds:
            raise PrivacyError(
                f"this client agreed to {self.rounds} rounds, {self.words}; the server's run is {agreement.name!r} of "
                f"{agreement.rounds} rounds. Give serve and join the same privacy and rounds; nothing was released"
            )

    def of_server(self, codec: str) -> Privacy | None:
        """The server's half: its noise and its ledger where whole clients are protected, else none."""
        if not self.by_client or self.clients is None:
            return None
        shape = RunShape(
            sizes=[1] * self.clients,
            batch=None,
            steps=1,
            rounds=self.rounds,
            fraction=self.fraction,
            codec=codec,
            cohort=lambda t: (),
            per_example=None,
        )
        private = plan_private_run(shape, self.privacy)
        return Privacy(ledger=private.ledger, **{private.place: private.mechanism})  # type: ignore[arg-type]
