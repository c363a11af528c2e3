"""Certificates of one deployment: an authority of its own signs every party's, and its key is forgotten.

Nobody can be added later, so whoever holds a certificate is one of the listed parties.  A certificate with a host is a
server's and does not pass for a client's, nor the other way round.  Only their owner can read private keys.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "common_name", "make_loopback_certificate", "private_pem", "write_private"]

_VALID = datetime.timedelta(days=365)
_LEAF = x509.BasicConstraints(ca=False, path_length=None)
_AUTHORITY = x509.BasicConstraints(ca=True, path_length=0)


class Authority:
    """Signs the certificates of one deployment; its private key lives as long as this object and is never written.

    ``curve`` is that of every key: P-256 where handshakes are many and bytes are dear, P-384 where Flower asks for it.
    """

    def __init__(self, curve: ec.EllipticCurve | None = None) -> None:
        self.curve = curve or ec.SECP256R1()
        self._key = ec.generate_private_key(self.curve)
        self._name = _name("desketch deployment authority")
        self.certificate = _certificate(self._name, self._name, self._key.public_key(), self._key, _AUTHORITY)

    def write(self, path: Path) -> None:
        """Write the authority's certificate, by which parties know one another."""
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, certificate: Path, key: Path, name: str, *, host: str | None = None) -> None:
        """Write a certificate for ``name`` and its key: a server's that answers at ``host``, else a client's."""
        own, alternative = ec.generate_private_key(self.curve), None if host is None else _alternative(host)
        signed = _certificate(_name(name), self._name, own.public_key(), self._key, _LEAF, alternative)
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_private(key, private_pem(own, serialization.PrivateFormat.PKCS8))


def make_loopback_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key: what two processes of one machine need."""
    key, name = ec.generate_private_key(ec.SECP384R1()), _name("desketch tunnel")
    certificate = _certificate(name, name, key.public_key(), key, _LEAF, _alternative("127.0.0.1"))
    write_private(folder / "loopback.key", private_pem(key, serialization.PrivateFormat.PKCS8))
    (folder / "loopback.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "loopback.pem", folder / "loopback.key"


def common_name(certificate: Path) -> str:
    """Whom a certificate names."""
    subject = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def private_pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    """A private key as text, not encrypted."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


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
    if not constraints.ca:  # a client's certificate must not pass for the server's, nor the server's for a client's
        use = ExtendedKeyUsageOID.SERVER_AUTH if alternative else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    return builder.sign(signer, hashes.SHA384() if signer.curve.key_size > 256 else hashes.SHA256())


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
    """The names a server answers to: its address, and this machine's own for who runs beside it."""
    local: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        given: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        given = x509.DNSName(host)
    return x509.SubjectAlternativeName([given, *(name for name in local if name != given)])
