"""Keys and certificates of one deployment, made on the user's machine and left in the user's folder.

A certificate authority of this deployment's own signs one certificate for the server and one for each node, and its key
is forgotten: nobody can be added later, so whoever holds a certificate is one of the listed parties.  A node has two
private keys: its certificate's (``NODE.crt``, ``NODE.crt.key``), with which it opens connections, and an ECDSA P-384
pair (``NODE.key``, ``NODE.pub``), with which its SuperNode signs requests.  Only their owner can read private keys.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from desketch.errors import RunError

__all__ = ["header_of", "make_credentials", "make_loopback_certificate", "make_node_key"]

_VALID = datetime.timedelta(days=365)
_LEAF = x509.BasicConstraints(ca=False, path_length=None)


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
    authority = ec.generate_private_key(ec.SECP384R1())
    issuer = _name("desketch deployment authority")
    ca = _certificate(issuer, issuer, authority.public_key(), authority, x509.BasicConstraints(ca=True, path_length=0))
    _issue(folder / "server.pem", folder / "server.key", host, issuer, authority, _alternative(host))
    for node in listed:
        make_node_key(folder, node)
        _issue(folder / f"{node}.crt", folder / f"{node}.crt.key", node, issuer, authority)
    (folder / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))  # last: it says that all is there


def make_node_key(folder: Path, node: str) -> None:
    """Write ``NODE.key`` and ``NODE.pub``, the pair a SuperNode proves itself with."""
    key = ec.generate_private_key(ec.SECP384R1())
    folder.mkdir(parents=True, exist_ok=True)
    _write_private(folder / f"{node}.key", _pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{node}.pub").write_bytes(public + b"\n")


def make_loopback_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key: what two processes of one machine need."""
    key, name = ec.generate_private_key(ec.SECP384R1()), _name("desketch tunnel")
    certificate = _certificate(name, name, key.public_key(), key, _LEAF, _alternative("127.0.0.1"))
    _write_private(folder / "loopback.key", _pem(key, serialization.PrivateFormat.PKCS8))
    (folder / "loopback.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "loopback.pem", folder / "loopback.key"


def header_of(public: Path) -> str:
    """A node's public key as its SuperNode states it in the header of every request."""
    key = serialization.load_ssh_public_key(public.read_bytes())
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(pem).decode("ascii")


def _issue(
    certificate: Path,
    key: Path,
    name: str,
    issuer: x509.Name,
    authority: ec.EllipticCurvePrivateKey,
    alternative: x509.SubjectAlternativeName | None = None,
) -> None:
    """A pair signed by the authority: a server's if it has addresses, else a client's."""
    own = ec.generate_private_key(ec.SECP384R1())
    signed = _certificate(_name(name), issuer, own.public_key(), authority, _LEAF, alternative)
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    _write_private(key, _pem(own, serialization.PrivateFormat.PKCS8))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
    alternative: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(sign_certificates=constraints.ca), critical=True)
    )
    if alternative is not None:
        builder = builder.add_extension(alternative, critical=False)
    if not constraints.ca:  # a node's certificate must not pass for the server's, nor the server's for a node's
        use = ExtendedKeyUsageOID.SERVER_AUTH if alternative else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.SubjectAlternativeName:
    """The names the SuperLink answers to: its address, and this machine's own for the ServerApp beside it."""
    local: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        given: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        given = x509.DNSName(host)
    return x509.SubjectAlternativeName([given, *(name for name in local if name != given)])


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
