"""KServe's vLLM has a certificate that signs itself: the recipes' flags against a server with such a one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recipes.sidecar import loaded, sidecar_of
from recipes.stacks import Pod, llm_inference_service, load
from support.certificates import self_signed, server_side
from support.faulty_server import FaultyServer, answer
from vllm_specdec_exporter.serve.upstream import PollError, Upstream

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full

VERIFYING = "kserve/llminferenceserviceconfig.yaml"
TRUSTING = "kserve/llminferenceservice.yaml"


Files = tuple[str, str]


def certificate(folder: Path, name: str = "first") -> Files:
    """Return the files of a certificate as KServe makes it, with the loopback's address among its names."""
    return self_signed(folder, name, "localhost", "127.0.0.1")


def serving(files: Files) -> FaultyServer:
    """Return a server of metrics with a certificate."""
    return FaultyServer(answer(b"vllm:num_requests_running 0\n"), tls=server_side(files))


def pod_of(path: str) -> Pod:
    """Return the pod that KServe makes."""
    (pod,) = llm_inference_service(load(path))
    return pod


def upstream(path: str, port: int, authority: str = "") -> Upstream:
    """Return the exporter's client with a recipe's flags, for another port and another file."""
    places = {"127.0.0.1:8000": f"127.0.0.1:{port}", "/var/run/specdec/ca.crt": authority}
    args = sidecar_of(pod_of(path))["args"]
    for place, here in places.items():
        args = [argument.replace(place, here) for argument in args]
    settings = loaded(args).upstream
    return Upstream(settings.targets[0], settings)


async def body(client: Upstream) -> bytes:
    """Return what the client reads."""
    try:
        return (await client.fetch()).body
    finally:
        await client.close()


async def test_verifying_reads_kserves_vllm_and_no_other(tmp_path: Path) -> None:
    """The certificate is its own authority, and 127.0.0.1 is in it; another certificate is refused."""
    files, (other, _) = certificate(tmp_path), certificate(tmp_path, "second")
    with serving(files) as server:
        assert b"num_requests_running" in await body(upstream(VERIFYING, server.port, files[0]))
        with pytest.raises(PollError, match="certificate"):
            await body(upstream(VERIFYING, server.port, other))


async def test_not_verifying_survives_a_new_certificate(tmp_path: Path) -> None:
    """KServe replaces the certificate when a pod has a new address; the other recipe does not notice."""
    for name in ("first", "second"):
        with serving(certificate(tmp_path, name)) as server:
            assert b"num_requests_running" in await body(upstream(TRUSTING, server.port))


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
