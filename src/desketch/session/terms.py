"""The terms of a private client: what its own settings say that a round costs, whatever a server says."""

from __future__ import annotations

import hashlib

from desketch.errors import PrivacyError
from desketch.fed.mechanism import Privacy
from desketch.privacy.client_ledger import Terms
from desketch.privacy.events import Event
from desketch.privacy.mechanisms import NoisySteps, SketchClipClients, SketchClipExamples
from desketch.session.agreement import Agreement

__all__ = ["terms_of"]


def terms_of(privacy: Privacy, agreement: Agreement, *, rounds: int, examples: int, steps: int) -> Terms:
    """What a client with so many ``examples`` and local ``steps`` agrees to by its mechanism and its budget."""
    mechanism = privacy.step or privacy.examples or privacy.sketch
    cost: Event
    if isinstance(mechanism, SketchClipClients):
        cost = mechanism.event()
    elif isinstance(mechanism, NoisySteps | SketchClipExamples):
        cost = mechanism.event(examples=examples, steps=steps)
    else:
        raise PrivacyError(f"nobody knows what a release of {mechanism!r} costs")
    record = privacy.ledger.record
    return Terms(
        run=hashlib.sha256(agreement.to_json()).hexdigest(),
        rounds=rounds,
        unit=record.ledger.unit,
        adjacency=record.ledger.adjacency,
        cost=cost,
        unasked=privacy.sketch is not None,
        budget=record.budget,
        not_private=record.ledger.not_private,
    )
