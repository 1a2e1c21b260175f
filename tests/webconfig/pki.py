"""A server's and its clients' certificates, in the files that the corpus and the
documentation name.
"""

from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.certificates import Authority


class Pki:
    """Files in a folder: ``server.pem`` and ``server.key``, issued by ``ca``;
    ``clients.pem`` for clients.
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
            self.ca.issue("127.0.0.1", "localhost"),
            ("server.pem", "server.key"),
            strict=True,
        ):
            Path(new).replace((into or self.folder) / name)

    def serial(self, folder: Path | None = None) -> int:
        """The serial number of the server's certificate as it is in its file."""
        return serial_of(((folder or self.folder) / "server.pem").read_bytes())

    def extras(self) -> None:
        """Write what only the corpus of errors names."""
        key = ec.generate_private_key(ec.SECP256R1())
        for name, encryption in (
            ("other.key", serialization.NoEncryption()),
            ("encrypted.key", serialization.BestAvailableEncryption(b"secret")),
        ):
            pem = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                encryption,
            )
            (self.folder / name).write_bytes(pem)
        (self.folder / "text.pem").write_text("not a certificate\n")


def serial_of(certificate: bytes) -> int:
    """The serial number of a certificate, PEM or DER."""
    if certificate.startswith(b"-----"):
        return x509.load_pem_x509_certificate(certificate).serial_number
    return x509.load_der_x509_certificate(certificate).serial_number


def hashed(password: str, cost: int = 4) -> str:
    """The bcrypt hash of a password; a cheap one unless another cost is asked for."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()
