"""KServe's vLLM has a certificate that signs itself: the recipes' flags against a server with such a one."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recipes.sidecar import loaded, sidecar_of
from recipes.stacks import Pod, llm_inference_service, load
from support.certificates import server_side
from support.faulty_server import FaultyServer, answer
from vllm_specdec_exporter.serve.upstream import PollError, Upstream

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full

VERIFYING = "kserve/llminferenceserviceconfig.yaml"
TRUSTING = "kserve/llminferenceservice.yaml"


def self_signed(folder: Path, serial: int) -> Path:
    """Write a certificate as KServe makes it, with its key; return its path.

    No CA, no key identifiers, for servers, with the loopback's address among its names.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Kserve Self Signed")])
    now = datetime.datetime.now(datetime.UTC)
    usages = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign"), False
    )
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), serial, now, now + datetime.timedelta(days=3650)
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=True,
                encipher_only=False,
                decipher_only=False,
                **usages,
            ),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{serial}.crt"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


def serving(certificate: Path) -> FaultyServer:
    """Return a server of metrics with a certificate."""
    files = (str(certificate), str(certificate.with_suffix(".key")))
    return FaultyServer(answer(b"vllm:num_requests_running 0\n"), tls=server_side(files))


def pod_of(path: str) -> Pod:
    """Return the pod that KServe makes."""
    (pod,) = llm_inference_service(load(path))
    return pod


def upstream(path: str, port: int, authority: Path | None = None) -> Upstream:
    """Return the exporter's client with a recipe's flags, for another port and another file."""
    args = [
        argument.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        for argument in sidecar_of(pod_of(path))["args"]
    ]
    if authority is not None:
        args = [argument.replace("/var/run/specdec/ca.crt", str(authority)) for argument in args]
    settings = loaded(args).upstream
    return Upstream(settings.targets[0], settings)


async def body(client: Upstream) -> bytes:
    """Return what the client reads."""
    try:
        return (await client.fetch()).body
    finally:
        await client.close()


@pytest.mark.parametrize("path", [TRUSTING, VERIFYING])
async def test_the_recipe_reads_kserves_vllm(path: str, tmp_path: Path) -> None:
    """The certificate is its own authority, and 127.0.0.1 is in it: both recipes poll over TLS."""
    certificate = self_signed(tmp_path, 1)
    with serving(certificate) as server:
        assert b"num_requests_running" in await body(upstream(path, server.port, certificate))


async def test_verifying_refuses_another_certificate(tmp_path: Path) -> None:
    """The recipe with a CA is one that verifies."""
    with serving(self_signed(tmp_path, 1)) as server:
        client = upstream(VERIFYING, server.port, self_signed(tmp_path, 2))
        with pytest.raises(PollError, match="certificate"):
            await body(client)


async def test_not_verifying_survives_a_new_certificate(tmp_path: Path) -> None:
    """KServe replaces the certificate when a pod has a new address; the other recipe does not notice."""
    for serial in (1, 2):
        with serving(self_signed(tmp_path, serial)) as server:
            client = upstream(TRUSTING, server.port)
            assert b"num_requests_running" in await body(client)


def test_the_authority_is_mounted_and_no_key_with_it() -> None:
    """The file that the flag names comes from KServe's Secret, of which nothing else is mounted."""
    pod = pod_of(VERIFYING)
    container = sidecar_of(pod)
    (flag,) = [argument for argument in container["args"] if argument.startswith("--vllm.ca-file=")]
    (mount,) = container["volumeMounts"]
    assert flag == f"--vllm.ca-file={mount['mountPath']}/ca.crt"
    assert mount["readOnly"] is True
    (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == mount["name"]]
    assert volume["secret"] == {
        "secretName": "llama-kserve-self-signed-certs",
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }
