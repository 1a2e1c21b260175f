"""A server's and its clients' certificates, in the files that the corpus and the documentation name."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.certificates import Authority


class Pki:
    """Files in a folder: ``server.pem`` and ``server.key``, issued by ``ca``; ``clients.pem`` issues clients.

    Attributes:
        folder: where they are.
        ca: who issues the server's certificate.
        clients: who issues the clients'.
        strangers: who issues others'.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = Authority(folder, "ca")
        self.clients = Authority(folder, "clients")
        self.strangers = Authority(folder, "strangers")
        self.renew()

    def renew(self, into: Path | None = None) -> None:
        """Write a new certificate for the server and its key, each in one step."""
        for new, name in zip(
            self.ca.issue("127.0.0.1", "localhost"), ("server.pem", "server.key"), strict=True
        ):
            Path(new).replace((into or self.folder) / name)

    def serial(self, folder: Path | None = None) -> int:
        """The serial number of the server's certificate as it is in its file."""
        return serial_of(((folder or self.folder) / "server.pem").read_bytes())

    def extras(self) -> None:
        """Write what only the corpus of errors names."""
        other = ec.generate_private_key(ec.SECP256R1())
        for name, encryption in (
            ("other.key", serialization.NoEncryption()),
            ("encrypted.key", serialization.BestAvailableEncryption(b"secret")),
        ):
            pem = other.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
            (self.folder / name).write_bytes(pem)
        (self.folder / "text.pem").write_text("not a certificate\n")

    def self_signed(self, *names: x509.GeneralName) -> tuple[str, str]:
        """Return the files of a certificate with these alternative names that is its own issuer."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(key, hashes.SHA256())
        )
        paths = self.folder / "self.pem", self.folder / "self.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(paths[0]), str(paths[1])


#: An alternative name of each kind, as the format writes it and as a certificate holds it.
NAMES: dict[str, tuple[str, x509.GeneralName]] = {
    "DNS": ("prometheus.example", x509.DNSName("prometheus.example")),
    "IPv4": ("192.0.2.7", x509.IPAddress(ip_address("192.0.2.7"))),
    "IPv6": ("2001:db8::7", x509.IPAddress(ip_address("2001:db8::7"))),
    "e-mail": ("ops@example.com", x509.RFC822Name("ops@example.com")),
    "URI": (
        "spiffe://example/ns/monitoring",
        x509.UniformResourceIdentifier("spiffe://example/ns/monitoring"),
    ),
}


def serial_of(certificate: bytes) -> int:
    """The serial number of a certificate, PEM or DER."""
    if certificate.startswith(b"-----"):
        return x509.load_pem_x509_certificate(certificate).serial_number
    return x509.load_der_x509_certificate(certificate).serial_number


def hashed(password: str, cost: int = 4) -> str:
    """The bcrypt hash of a password; a cheap one unless another cost is asked for."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()
