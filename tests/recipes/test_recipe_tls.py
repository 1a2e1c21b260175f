"""KServe with TLS: vLLM has a certificate that signs itself, and KServe may replace it
at any time.
"""

from pathlib import Path

import pytest

from recipes.sidecar import loaded, sidecar_of
from recipes.stacks import llm_inference_service, load
from support.certificates import self_signed, server_side
from support.faulty_server import FaultyServer, answer
from vllm_specdec_exporter.upstream.client import Upstream

pytestmark = pytest.mark.full


@pytest.mark.parametrize("tls", [True, False])
async def test_the_recipe_reads_vllm_with_and_without_tls(
    tmp_path: Path, tls: bool
) -> None:
    """KServe expands the address, and whether to verify, by its own setting."""
    (pod,) = llm_inference_service(load("kserve/llminferenceservice.yaml"), tls=tls)
    # With another certificate the second time, as KServe issues a new one.
    for name in ("first", "second"):
        files = None
        if tls:
            files = server_side(self_signed(tmp_path, name, "localhost", "127.0.0.1"))
        with FaultyServer(
            answer(b"vllm:num_requests_running 0\n"), tls=files
        ) as server:
            args = [
                argument.replace(":8000", f":{server.port}")
                for argument in sidecar_of(pod)["args"]
            ]
            settings = loaded(args).upstream
            client = Upstream(settings.targets[0], settings)
            try:
                assert b"num_requests_running" in (await client.fetch()).body, name
            finally:
                await client.close()
