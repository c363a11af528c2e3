"""The one record of every desketch message in Flower: frames, and beside them the metrics of a wrapped app.

Imports no torch: ClientApps start often.
"""

from __future__ import annotations

import json

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from desketch.errors import InputError, WireError

__all__ = ["KEY", "METRICS_LIMIT", "carries", "content", "metrics", "read", "size"]

KEY = "desketch"
METRICS_LIMIT = 16_384  # bytes: a sketch is small, and what travels beside it must not be the larger part
_FRAMES, _METRICS = "f", "m"


def content(data: bytes, metrics: MetricRecord | None = None) -> RecordDict:
    """The content of a message that carries these frames, and metrics if there are any."""
    fields: dict[str, bytes] = {_FRAMES: data}
    if metrics:
        fields[_METRICS] = json.dumps(dict(metrics), separators=(",", ":")).encode()
        if len(fields[_METRICS]) > METRICS_LIMIT:
            raise InputError(
                f"the app's metrics take {len(fields[_METRICS])} bytes, at most {METRICS_LIMIT} travel; return fewer"
            )
    return RecordDict({KEY: ConfigRecord(fields)})


def carries(message: Message) -> bool:
    """Whether the message is one of ours."""
    return message.has_content() and KEY in message.content.config_records


def read(message: Message) -> bytes:
    """The frames of a message."""
    data = message.content.config_records[KEY].get(_FRAMES) if carries(message) else None
    if not isinstance(data, bytes):
        raise WireError("message: no frames in it; is the ClientApp wrapped with sketch_mod?")
    return data


def size(message: Message) -> int:
    """Bytes of the metrics that travel beside the frames."""
    data = message.content.config_records[KEY].get(_METRICS, b"") if carries(message) else b""
    return len(data) if isinstance(data, bytes) else 0


def metrics(message: Message) -> MetricRecord | None:
    """The metrics of a reply, judged like everything a client sends; None when there are none."""
    data = message.content.config_records[KEY].get(_METRICS) if carries(message) else None
    if data is None:
        return None
    if not isinstance(data, bytes) or len(data) > METRICS_LIMIT:
        raise WireError(f"metrics: expected at most {METRICS_LIMIT} bytes")
    try:
        return MetricRecord(json.loads(data))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise WireError(f"metrics: cannot be read: {error}") from None
