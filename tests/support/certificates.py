"""Certificates for tests of TLS, made anew for each run."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority whose files are in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *names: str, expired: bool = False) -> tuple[str, str]:
        """Return the files of a new certificate for these host names and addresses, and
        of its key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._key.public_key()
        )
        certificate = (
            _builder(subject, self._name, key, expired=expired)
            .add_extension(
                x509.SubjectAlternativeName(list(map(_general, names))), critical=False
            )
            .add_extension(identifier, critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        stem = f"{self.file.stem}-{names[0]}{'-expired' if expired else ''}"
        return _written(self._folder / stem, certificate, key)


def self_signed(folder: Path, name: str, *hosts: str) -> tuple[str, str]:
    """Return the files of a server's certificate that signs itself and is no authority,
    and of its key.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, name)])
    certificate = (
        _builder(subject, subject, key)
        .add_extension(
            x509.SubjectAlternativeName(list(map(_general, hosts))), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _written(folder / name, certificate, key)


def _written(
    stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[str, str]:
    files = f"{stem}.pem", f"{stem}.key"
    Path(files[0]).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    Path(files[1]).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def server_side(
    files: tuple[str, str], clients: Authority | None = None
) -> ssl.SSLContext:
    """Return a server's TLS settings; with `clients`, it asks for certificates that
    these issued.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.file)
    return context


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    expired: bool = False,
) -> x509.CertificateBuilder:
    moment = datetime.now(UTC)
    end = moment - timedelta(days=1) if expired else moment + timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(days=2))
        .not_valid_after(end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        if "://" in name:
            kind = x509.UniformResourceIdentifier
        elif "@" in name:
            kind = x509.RFC822Name
        else:
            kind = x509.DNSName
        return kind(name)
