"""The broker of a deployment: mosquitto, from the system's packages, with a configuration and an access list.

In a secure deployment a party is who its certificate says, whatever it claims: its MQTT name is the certificate's, so
nobody takes another's place, and a client may write and read its own topics only.  A browser tab on this machine has a
listener and a password of its own, and is kept to its topics in any deployment.  Session and retained messages are kept
on disk.  The server reads replies slower than thousands of clients write them, so as many may wait for it: what finds
no room is dropped, and sent again only when the rounds repeat its order.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from desketch.integrations.mqtt.address import ROOT, SERVER, Topics
from desketch.integrations.processes import find_tool, free_port

__all__ = ["MAX_PACKET", "Tab", "mosquitto", "write_broker"]

_ITERATIONS = 101  # of PBKDF2: a tab's key is random, nobody guesses it
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
per_listener_settings true
{listeners}"""

_LISTENER = """
listener {port}{address}
protocol {protocol}
max_connections {connections}
{access}"""

_TLS = """\
cafile {keys}/ca.pem
certfile {keys}/cert.pem
keyfile {keys}/key.pem
tls_version tlsv1.2
require_certificate true
use_identity_as_username true
use_username_as_clientid true
"""

_TAB = """
listener {port} 127.0.0.1
protocol websockets
max_connections 16
allow_anonymous false
password_file {folder}/tab.password
acl_file {folder}/tab.access
"""

_ACCESS = """\
# written by desketch deploy: %u is the name in a party's certificate, or that of a tab's password
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


@dataclass(frozen=True)
class Tab:
    """The client that is a browser tab: its number, the broker's port for it, its key."""

    client: int
    port: int = field(default_factory=free_port)
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    @property
    def password_line(self) -> str:
        """What mosquitto's password file has for it."""
        salt = os.urandom(12)
        made = hashlib.pbkdf2_hmac("sha512", self.key.encode(), salt, _ITERATIONS)
        coded = [base64.b64encode(part).decode() for part in (salt, made)]
        return f"{self.client}:$7${_ITERATIONS}${coded[0]}${coded[1]}\n"


def mosquitto() -> str:
    """The path of the broker."""
    return find_tool("mosquitto", _ADVICE)


def write_broker(
    folder: Path,
    *,
    clients: int,
    port: int,
    keys: Path | None,
    web: int | None = None,
    tab: Tab | None = None,
    root: str = ROOT,
) -> Path:
    """Write the broker's configuration; returns it.

    With ``keys`` (its folder of credentials) it listens on every interface and knows its parties by certificate;
    without, on loopback only, and lets everybody in.  ``web`` is the port of a WebSocket listener, which asks for
    the same; ``tab`` is a browser tab on this machine.
    """
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    address = "" if keys else " 127.0.0.1"
    access, listeners = "allow_anonymous true\n", ""
    if keys:
        access = f"allow_anonymous false\nacl_file {folder / 'access'}\n"
        _write(folder / "access", _access(root))
    for number, protocol in ((port, "mqtt"), (web, "websockets")):
        if number is not None:
            listeners += _LISTENER.format(
                port=number, address=address, protocol=protocol, connections=2 * clients + 16, access=access
            )
            listeners += _TLS.format(keys=keys) if keys else ""
    if tab:
        listeners += _TAB.format(port=tab.port, folder=folder)
        _write(folder / "tab.password", tab.password_line)
        _write(folder / "tab.access", _access(root))
    configuration = folder / "mosquitto.conf"
    text = _CONFIGURATION.format(
        user=getpass.getuser(),
        state=state,
        packet=MAX_PACKET,
        queue=1000 + 4 * clients,
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
