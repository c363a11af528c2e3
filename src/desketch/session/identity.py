"""Identities: which client a node may speak for.

Where nodes are enrolled (a secure deployment), the list says it: a node id stands for a key, and a key for a client.
Elsewhere the first binding wins.  A node stays the client it first was.  A client that comes back under a new node id
shows the token that it sent when it was first seen; while the holder of that token is there and answers, nobody else is
that client.  When its node is gone, or was asked and gave no usable answer for a whole round, the client is vacant:
whoever asks for it then gets it, since a client may have lost its disk.  A token travels once a contact, and whoever
can read the wire sees it: it keeps mistakes and bystanders out, not eavesdroppers.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from desketch.errors import WireError

__all__ = ["LARGEST_ID", "Identities"]

LARGEST_ID = 2**31 - 1


class Identities:
    """The bindings of one run.

    Args:
        clients: N, if ids are the public numbers 0..N-1.
        enrolled: node -> client where that is settled beforehand; no other node is then anybody.

    """

    def __init__(self, clients: int | None = None, enrolled: Mapping[int, int] | None = None) -> None:
        self.clients, self.enrolled = clients, enrolled
        self._nodes: dict[int, int] = {}  # node -> client
        self._tokens: dict[int, bytes] = {}  # client -> what its holder shows
        self._vacant: set[int] = set()

    def admit(self, node: int, client: int, token: bytes) -> None:
        """Bind the node to the client, or refuse by name: `WireError`."""
        largest = LARGEST_ID if self.clients is None else self.clients - 1
        if not 0 <= client <= largest:
            raise WireError(f"client: got id {client}, expected 0..{largest}")
        if self.enrolled is not None:
            self._check_enrolled(node, client)
        elif node in self._nodes:
            self._check_same(client, self._nodes[node])
        else:
            self._bind(client, token)
        self._nodes[node] = client
        self._vacant.discard(client)

    def _check_enrolled(self, node: int, client: int) -> None:
        assert self.enrolled is not None
        if node not in self.enrolled:
            raise WireError(f"client: the node claims to be client {client} and is not enrolled")
        self._check_same(client, self.enrolled[node])

    def _check_same(self, client: int, own: int) -> None:
        if client != own:
            raise WireError(f"client: the node of client {own} claims to be client {client}")

    def _bind(self, client: int, token: bytes) -> None:
        if not token:
            raise WireError(f"client: a new node claims to be client {client} and shows no token")
        if client not in self._vacant and not hmac.compare_digest(self._tokens.get(client, token), token):
            raise WireError(
                f"client: a new node claims to be client {client}, which another node is; a client that lost its "
                "folder is let in again when its former node is gone or has not answered for a round"
            )
        self._tokens[client] = token

    def may_be_somebody(self, node: int) -> bool:
        """Whether the node is worth an order: where nodes are enrolled, whether it is."""
        return self.enrolled is None or node in self.enrolled

    def owner(self, node: int) -> int | None:
        """The client a node is."""
        return self._nodes.get(node) if self.enrolled is None else self.enrolled.get(node)

    def connected(self, nodes: Iterable[int]) -> None:
        """Only these nodes are there: clients of other nodes are vacant."""
        there = {self._nodes[node] for node in nodes if node in self._nodes}
        self._vacant |= set(self._nodes.values()) - there

    def close(self, asked: Iterable[int], answered: Iterable[int]) -> None:
        """A round ended: clients whose node was asked and did not answer are vacant, and those that have no node."""
        silent = {self._nodes[node] for node in asked if node in self._nodes} - set(answered)
        self._vacant |= silent | (set(self._tokens) - set(self._nodes.values()))

    def state_dict(self) -> dict[str, Any]:
        """What must outlive the server's process."""
        return {str(client): token.hex() for client, token in sorted(self._tokens.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._tokens = {int(client): bytes.fromhex(token) for client, token in state.items()}
