"""The broker of a deployment: mosquitto, from the system's packages, with a configuration and an access list.

In a secure deployment a party is who its certificate says, whatever it claims: its MQTT name is the certificate's, so
nobody takes another's place, and a client may write and read its own topics only.  Session and retained messages are
kept on disk.  The server reads replies slower than thousands of clients write them, so as many may wait for it: what
finds no room is dropped, and sent again only when the rounds repeat its order.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from desketch.integrations.mqtt.address import ROOT, SERVER, Topics
from desketch.integrations.processes import find_tool

__all__ = ["MAX_PACKET", "mosquitto", "write_broker"]

MAX_PACKET = 64 << 20  # bytes: a checkpoint of sixteen million weights
_ADVICE = "install the broker with: apt-get install mosquitto (or give the address of any MQTT 5 broker)"

_CONFIGURATION = """\
# written by desketch deploy: the broker of one run
user {user}
persistence true
persistence_location {state}/
autosave_interval 60
max_packet_size {packet}
max_queued_messages {queue}
max_inflight_messages 0
set_tcp_nodelay true
sys_interval 0
log_dest stderr
log_type error
log_type warning
log_type notice
{access}{listeners}"""

_LISTENER = """
listener {port}{address}
protocol {protocol}
max_connections {connections}
"""

_TLS = """\
cafile {keys}/ca.pem
certfile {keys}/cert.pem
keyfile {keys}/key.pem
tls_version tlsv1.2
require_certificate true
use_identity_as_username true
use_username_as_clientid true
"""

_ACCESS = """\
# written by desketch deploy: %u is the name in a party's certificate
user {server}
topic read {replies}
topic read {presence}
topic write {all_orders}
topic write {everybody}

pattern read {root}/%u/o
pattern read {everybody}
pattern write {root}/%u/r
pattern write {root}/%u/p
"""


def mosquitto() -> str:
    """The path of the broker."""
    return find_tool("mosquitto", _ADVICE)


def write_broker(
    folder: Path, *, clients: int, port: int, keys: Path | None, web: int | None = None, root: str = ROOT
) -> Path:
    """Write the broker's configuration; returns it.

    With ``keys`` (its folder of credentials) it listens on every interface and knows its parties by certificate;
    without, on loopback only, and lets everybody in.  ``web`` is the port of a WebSocket listener, for browsers.
    """
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    address = "" if keys else " 127.0.0.1"
    listeners = ""
    for number, protocol in ((port, "mqtt"), (web, "websockets")):
        if number is not None:
            listeners += _LISTENER.format(port=number, address=address, protocol=protocol, connections=2 * clients + 16)
            listeners += _TLS.format(keys=keys) if keys else ""
    access = "allow_anonymous true\n"
    if keys:
        access = f"allow_anonymous false\nacl_file {folder / 'access'}\n"
        _write(folder / "access", _access(root))
    configuration = folder / "mosquitto.conf"
    text = _CONFIGURATION.format(
        user=getpass.getuser(),
        state=state,
        packet=MAX_PACKET,
        queue=1000 + 4 * clients,
        access=access,
        listeners=listeners,
    )
    _write(configuration, text)
    return configuration


def _access(root: str) -> str:
    topics = Topics(root)
    return _ACCESS.format(
        server=SERVER,
        replies=topics.replies(),
        presence=topics.presence(),
        all_orders=f"{root}/+/o",
        everybody=topics.everybody,
        root=root,
    )


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
