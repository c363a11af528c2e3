"""Credentials of one MQTT deployment: a folder for the broker, one for the server, one for each client.

::

    keys/broker, keys/server, keys/client-0, ...    ca.pem cert.pem key.pem; give each party its own folder, no other
"""

from __future__ import annotations

from pathlib import Path

from desketch.errors import RunError
from desketch.integrations.certificates import Authority
from desketch.integrations.mqtt.address import SERVER

__all__ = ["make_credentials"]

_FILES = ("cert.pem", "key.pem", "ca.pem")


def make_credentials(folder: Path, host: str, clients: int) -> None:
    """Write what is needed for ``clients`` clients of a broker at ``host``; what is complete already is kept."""
    names = {"broker": "broker", SERVER: SERVER, **{f"client-{client}": str(client) for client in range(clients)}}
    missing = [party for party in names if not all((folder / party / file).exists() for file in _FILES)]
    if not missing:
        return
    if len(missing) < len(names) or any(folder.glob("*/ca.pem")):
        raise RunError(
            f"{folder} has credentials of another deployment: {', '.join(missing[:4])} missing, and its authority's "
            "key was not kept; choose another folder, or delete this one's keys and give every party its new ones"
        )
    authority = Authority()
    for party, name in names.items():
        own = folder / party
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority.issue(own / "cert.pem", own / "key.pem", name, host=host if party == "broker" else None)
    for party in names:
        authority.write(folder / party / "ca.pem")  # last: it says that all is there
