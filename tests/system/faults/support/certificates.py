"""Certificates for test upstreams: valid ones, and ones that no client may accept."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class Authority:
    """A root that issues certificates; ``root`` is its file, for clients that should trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pair = _issue("the tests' root", None, days=30, is_root=True)
        self.root = folder / "root.pem"
        self.root.write_bytes(self._pair.certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, host: str = "127.0.0.1", *, days: int = 30, trusted: bool = True) -> ssl.SSLContext:
        """The TLS configuration of a server for ``host``, with a certificate that expires in ``days`` days.
        ``trusted``: issued by the root; otherwise self-signed."""
        pair = _issue(host, self._pair if trusted else None, days=days)
        file = self._folder / f"{host}-{days}-{trusted}.pem"
        file.write_bytes(
            pair.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + pair.certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _issue(host: str, issuer: _Pair | None, *, days: int, is_root: bool = False) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    ends = now + timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - _DAY)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
    )
    if not is_root:
        address = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return _Pair(builder.sign(key if issuer is None else issuer.key, hashes.SHA256()), key)
