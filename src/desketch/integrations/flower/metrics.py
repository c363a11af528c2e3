"""Metrics of clients, gathered from replies and aggregated the way FedAvg does it.

A client's metrics are claims like its update: those that cannot be read, or do not agree with the others on their
names, are left out with a warning, and the round goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import WARNING

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy.strategy_utils import validate_message_reply_consistency
from flwr.supercore import log

from desketch.errors import WireError
from desketch.integrations.flower import record

__all__ = ["Aggregate", "aggregate", "gather"]

Aggregate = Callable[[list[RecordDict], str], MetricRecord]


def gather(replies: Iterable[Message]) -> list[RecordDict]:
    """The metrics of these replies, each in a record of its own as FedAvg's functions expect them."""
    found = []
    for reply in replies:
        try:
            metrics = record.metrics(reply)
        except WireError as error:
            log(WARNING, "node %d: %s", reply.metadata.src_node_id, error)
            continue
        if metrics is not None:
            found.append(RecordDict({"metrics": metrics}))
    return found


def aggregate(contents: list[RecordDict], weighted_by: str, function: Aggregate) -> MetricRecord | None:
    """``function`` of the metrics, once FedAvg's own conditions hold; None where they do not."""
    if not contents:
        return None
    try:
        validate_message_reply_consistency(contents, weighted_by, check_arrayrecord=False)
    except InconsistentMessageReplies as error:
        log(WARNING, "client metrics are left out: %s", error)
        return None
    weights = [content["metrics"][weighted_by] for content in contents]
    if not 0 < sum(weights) < float("inf") or min(weights) < 0:
        log(WARNING, "client metrics are left out: their weights %r are %s", weighted_by, weights)
        return None
    return function(contents, weighted_by)
