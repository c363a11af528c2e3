"""The one record of every desketch message in Flower: bytes in, bytes out.

Imports no torch: ClientApps start often.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

from desketch.errors import WireError

__all__ = ["KEY", "carries", "content", "read"]

KEY = "desketch"
_FIELD = "f"


def content(data: bytes) -> RecordDict:
    """The content of a message that carries these frames."""
    return RecordDict({KEY: ConfigRecord({_FIELD: data})})


def carries(message: Message) -> bool:
    """Whether the message is one of ours."""
    return message.has_content() and KEY in message.content.config_records


def read(message: Message) -> bytes:
    """The frames of a message."""
    data = message.content.config_records[KEY].get(_FIELD) if carries(message) else None
    if not isinstance(data, bytes):
        raise WireError("message: no frames in it; is the ClientApp wrapped with sketch_mod?")
    return data
