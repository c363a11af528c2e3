"""Where a run's broker is and how to get in: ``mqtts://host:port/root`` and a folder of credentials.

A folder of credentials is one party's: ``ca.pem`` (by which it knows the broker), ``cert.pem`` and ``key.pem`` (by
which the broker knows it).  The name in the certificate is the party's: "server", or the number of a client.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from desketch.errors import InputError

__all__ = ["ROOT", "SERVER", "Address", "Topics", "client_of", "tls_context"]

ROOT = "d"  # every byte of a topic travels with every message
SERVER = "server"  # whom the server's certificate names
PORTS = {"mqtt": 1883, "mqtts": 8883}
_ROOT = re.compile(r"[A-Za-z0-9_.~-]{1,64}")


@dataclass(frozen=True)
class Topics:
    """The topics of one run on its broker."""

    root: str = ROOT

    def orders(self, client: int) -> str:
        """Where client c reads its orders."""
        return f"{self.root}/{client}/o"

    def replies(self, client: int | str = "+") -> str:
        """Where client c answers; the server reads all of them."""
        return f"{self.root}/{client}/r"

    def presence(self, client: int | str = "+") -> str:
        """Where client c says that it is there."""
        return f"{self.root}/{client}/p"

    @property
    def everybody(self) -> str:
        """Where all clients read what is for all of them."""
        return f"{self.root}/o"

    def sender(self, topic: str) -> tuple[int, str] | None:
        """The client a topic belongs to and its last level, or None for what is nobody's."""
        root, _, rest = topic.partition("/")
        client, _, kind = rest.partition("/")
        if root != self.root or not client.isascii() or not client.isdigit() or len(client) > 9:
            return None
        return int(client), kind


@dataclass(frozen=True, kw_only=True)
class Address:
    """A broker, and the root of the run's topics on it."""

    host: str
    port: int
    tls: bool
    root: str = ROOT

    @classmethod
    def parse(cls, url: str, *, insecure: bool = False) -> Address:
        """Read ``mqtts://host[:port][/root]``; ``mqtt://`` speaks in the clear, elsewhere than here if ``insecure``."""
        parts = urlsplit(url if "://" in url else f"//{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise InputError(f"the address {url!r} has no usable port ({error}); write mqtts://host:8883") from None
        if parts.scheme not in PORTS or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise InputError(f"got the address {url!r}, expected mqtts://host:port, or mqtt://127.0.0.1:port")
        root = parts.path.strip("/") or ROOT
        if not _ROOT.fullmatch(root):
            raise InputError(f"the run's name in {url!r} is {root!r}; letters, digits, - _ . and ~ only, at most 64")
        tls = parts.scheme == "mqtts"
        if not tls and not insecure and not _on_loopback(parts.hostname):
            raise InputError(
                f"{url} would carry the run in the clear, and let anybody in; use mqtts:// with credentials "
                "(desketch deploy --engine mqtt --secure makes them), or say --insecure (insecure=True) if you mean it"
            )
        return cls(host=parts.hostname, port=port or PORTS[parts.scheme], tls=tls, root=root)

    @property
    def url(self) -> str:
        """The address as a user writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' * self.tls}://{host}:{self.port}" + (f"/{self.root}" if self.root != ROOT else "")

    @property
    def topics(self) -> Topics:
        """The run's topics."""
        return Topics(self.root)


def tls_context(credentials: Path | None, address: Address) -> ssl.SSLContext | None:
    """How this party proves itself to the broker, and the broker to it; None in the clear."""
    if not address.tls:
        if credentials is not None:
            raise InputError(f"credentials were given for {address.url}, which uses none; use mqtts://")
        return None
    if credentials is None:
        raise InputError(f"{address.url} asks for credentials; give the folder with ca.pem, cert.pem and key.pem")
    try:
        context = ssl.create_default_context(cafile=str(credentials / "ca.pem"))
        context.load_cert_chain(credentials / "cert.pem", credentials / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"{credentials} does not hold this party's credentials ({error}); expected ca.pem, cert.pem and key.pem, "
            "as desketch deploy --engine mqtt --secure writes them into keys/client-0 and so on"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def client_of(credentials: Path | None, number: int | None) -> int:
    """Which client this is: its certificate says it, else ``number``; they must not disagree."""
    if credentials is None:
        if number is None:
            raise InputError("which client is this? give its number (--client 0), or credentials that name it")
        return number
    from desketch.integrations.certificates import common_name

    try:
        name = common_name(credentials / "cert.pem")
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{credentials / 'cert.pem'} is no certificate of a client ({error})") from None
    if not (name.isascii() and name.isdigit()):
        raise InputError(f"the certificate in {credentials} names {name!r}, not a client; use keys/client-0 or another")
    if number is not None and number != int(name):
        raise InputError(f"the credentials in {credentials} are those of client {name}, not of client {number}")
    return int(name)


def _on_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
