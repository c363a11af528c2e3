"""Keys and certificates of one Flower deployment, made on the user's machine and left in the user's folder.

A certificate authority of this deployment's own (`desketch.integrations.certificates`) signs one certificate for the
server and one for each node.  A node has two private keys: its certificate's (``NODE.crt``, ``NODE.crt.key``), with
which it opens connections, and an ECDSA P-384 pair (``NODE.key``, ``NODE.pub``), with which its SuperNode signs
requests.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from desketch.errors import RunError
from desketch.integrations.certificates import Authority, private_pem, write_private

__all__ = ["header_of", "make_credentials", "make_node_key"]


def make_credentials(folder: Path, host: str, nodes: Iterable[str]) -> None:
    """Write ``ca.pem``, the server's pair and every node's two pairs; what is complete already is kept."""
    listed = list(nodes)
    wanted = [folder / name for name in ("ca.pem", "server.pem", "server.key")]
    wanted += [folder / f"{node}{end}" for node in listed for end in (".key", ".pub", ".crt", ".crt.key")]
    missing = [path.name for path in wanted if not path.exists()]
    if not missing:
        return
    if (folder / "ca.pem").exists():
        raise RunError(
            f"{folder} has keys of another deployment: {', '.join(missing[:4])} missing, and its authority's key was "
            "not kept; choose another folder, or delete this one's keys and give every node its new ones"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(ec.SECP384R1())
    authority.issue(folder / "server.pem", folder / "server.key", host, host=host)
    for node in listed:
        make_node_key(folder, node)
        authority.issue(folder / f"{node}.crt", folder / f"{node}.crt.key", node)
    authority.write(folder / "ca.pem")  # last: it says that all is there


def make_node_key(folder: Path, node: str) -> None:
    """Write ``NODE.key`` and ``NODE.pub``, the pair a SuperNode proves itself with."""
    key = ec.generate_private_key(ec.SECP384R1())
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / f"{node}.key", private_pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{node}.pub").write_bytes(public + b"\n")


def header_of(public: Path) -> str:
    """A node's public key as its SuperNode states it in the header of every request."""
    key = serialization.load_ssh_public_key(public.read_bytes())
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(pem).decode("ascii")
