"""Keys and certificates of one deployment, made on the user's machine and left in the user's folder.

A certificate authority of this deployment's own signs the SuperLink's certificate; every SuperNode has an ECDSA P-384
key pair, whose public half is registered with the SuperLink.  Private keys are readable by their owner only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["make_node_key", "make_server_certificate"]

_VALID = datetime.timedelta(days=365)


def make_server_certificate(folder: Path, host: str) -> None:
    """Write ``ca.pem``, ``server.pem`` and ``server.key``; the authority's own key is used once and not kept."""
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "desketch deployment authority")])
    ca = _certificate(issuer, issuer, authority.public_key(), authority, x509.BasicConstraints(ca=True, path_length=0))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    leaf = x509.BasicConstraints(ca=False, path_length=None)
    certificate = _certificate(name, issuer, server.public_key(), authority, leaf, _alternative(host))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(folder / "server.key", _pem(server, serialization.PrivateFormat.PKCS8))


def make_node_key(folder: Path, node: str) -> None:
    """Write ``NODE.key`` and ``NODE.pub``, the pair a SuperNode proves itself with."""
    key = ec.generate_private_key(ec.SECP384R1())
    folder.mkdir(parents=True, exist_ok=True)
    _write_private(folder / f"{node}.key", _pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{node}.pub").write_bytes(public + b"\n")


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
