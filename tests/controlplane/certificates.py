"""Keys and certificates of a control plane for tests.

Invariants: one authority signs everything. Keys are P-256, which are fast to create. The validity is a fixed century.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOT_BEFORE = datetime(2024, 1, 1, tzinfo=UTC)
NOT_AFTER = datetime(2123, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Identity:
    """The files of a key and its certificate."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes its certificates into one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control-plane-ca")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(constraints, critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        self.certificate = directory / "ca.crt"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def server(self, name: str) -> Identity:
        """Create a serving certificate for loopback."""
        addresses = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        return self._sign(name, "", ExtendedKeyUsageOID.SERVER_AUTH, addresses)

    def client(self, name: str, group: str) -> Identity:
        """Create a client certificate of the user `name` in the group `group`."""
        return self._sign(name, group, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _sign(
        self, name: str, group: str, use: x509.ObjectIdentifier, addresses: x509.SubjectAlternativeName | None
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if addresses is not None:
            builder = builder.add_extension(addresses, critical=False)
        identity = Identity(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        identity.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        _write_key(key, identity.key)
        return identity


def write_service_account_keys(directory: Path) -> tuple[Path, Path]:
    """Write the key pair that signs service account tokens; return (private, public)."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = directory / "sa.key", directory / "sa.pub"
    _write_key(key, private)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), NOT_BEFORE, NOT_AFTER
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    plain = serialization.NoEncryption()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
