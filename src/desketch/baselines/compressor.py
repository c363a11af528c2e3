"""Compressor: a map C from R^d to bytes and back, and error feedback around any of them.

A biased compressor (top-k, ternary, low rank) converges only when what it drops is sent later (Stich, Cordonnier,
Jaggi, "Sparsified SGD with memory", NeurIPS 2018):

    p = e + x,   send C(p),   e = p - C(p)

so after any number of rounds, all that was sent plus the residual e is exactly all that was to be sent.  With a decay
below 1 the residual fades, p = decay e + x, as SparseLoCo has it: what stays unsent for long is forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping

import torch
from torch import Tensor

from desketch.errors import InputError, WireError
from desketch.keys import Key

__all__ = ["Compressor", "ErrorFeedback", "SenderState", "check_length", "finite"]

SenderState = MutableMapping[str, Tensor]
"""What one sender (a client, or the server) remembers from round to round; tensors only, so that it checkpoints."""


class Compressor(ABC):
    """A map from R^d to bytes and back; all memory lives in the sender's state, all randomness in the message's key."""

    d: int

    @abstractmethod
    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Compress ``x`` of shape ``(d,)``; ``state`` belongs to the sender and is updated in place."""

    @abstractmethod
    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """Rebuild C(x) from its payload; a payload that `encode` cannot have made is a WireError."""


class ErrorFeedback(Compressor):
    """``C(x + decay e)`` with the residual e carried in the sender's state."""

    def __init__(self, inner: Compressor, *, decay: float = 1.0) -> None:
        if not 0 <= decay <= 1:
            raise InputError(f"decay is what the residual keeps a round, from 0 to 1, got {decay}")
        self.inner, self.d, self.decay = inner, inner.d, decay

    def encode(self, x: Tensor, *, key: Key, state: SenderState) -> bytes:
        """Compress ``x`` plus what earlier rounds left over, and keep what this one leaves."""
        p = torch.add(x, state["error"], alpha=self.decay) if "error" in state else x
        payload = self.inner.encode(p, key=key, state=state)
        state["error"] = p - self.inner.decode(payload, key=key)
        return payload

    def decode(self, payload: bytes, *, key: Key) -> Tensor:
        """Rebuild what was sent; the receiver needs no residual."""
        return self.inner.decode(payload, key=key)


def check_length(what: str, payload: bytes, expected: int) -> None:
    """Refuse a payload whose length is not the one its settings determine."""
    if len(payload) != expected:
        raise WireError(
            f"a {what} payload is {expected} bytes here, got {len(payload)}; the frame is damaged or foreign"
        )


def finite(what: str, x: Tensor) -> Tensor:
    """Return ``x`` if all its numbers are finite; refuse it by name otherwise."""
    if not bool(torch.isfinite(x).all()):
        raise WireError(f"{what} holds numbers that are not finite; the sender diverged or the frame is damaged")
    return x
