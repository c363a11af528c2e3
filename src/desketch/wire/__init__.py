"""Frames and codecs: how b numbers become bytes, and back, strictly."""

from __future__ import annotations

from desketch.wire.codecs import CODEC_TABLE, Codec
from desketch.wire.frame import CODECS, FAMILY_CODES, KINDS, Fields, Header, pack, peek, run_id, split, unpack
from desketch.wire.messages import Batch, decode, decode_batch, decode_extra, encode, encode_batch, frame_size
from desketch.wire.settings import Wire
from desketch.wire.short import lengthen, open_short, shorten

__all__ = [
    "CODECS",
    "CODEC_TABLE",
    "FAMILY_CODES",
    "KINDS",
    "Batch",
    "Codec",
    "Fields",
    "Header",
    "Wire",
    "decode",
    "decode_batch",
    "decode_extra",
    "encode",
    "encode_batch",
    "frame_size",
    "lengthen",
    "open_short",
    "pack",
    "peek",
    "run_id",
    "shorten",
    "split",
    "unpack",
]
