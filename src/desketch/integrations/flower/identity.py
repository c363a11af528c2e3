"""Who a client is and where it keeps its state: its own id and folder, since Flower's node ids change on restart.

Imports no torch: ClientApps start often.
"""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import Context

__all__ = ["client_id", "state_folder"]


def client_id(context: Context) -> int:
    """``client-id`` or ``partition-id`` of the node's config, or else 31 bits of the node id."""
    config = context.node_config
    return int(config.get("client-id", config.get("partition-id", context.node_id & 0x7FFFFFFF)))


def state_folder(context: Context) -> Path:
    """``state-folder`` of the node's config, or a folder of this client under FLWR_HOME."""
    given = context.node_config.get("state-folder")
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    return Path(str(given)) if given else home / "desketch" / f"client-{client_id(context)}"
