"""Records what LiteLLM tells a callback.

The project's own environment has no LiteLLM, which needs an older openai than the one
that is tested here. Where `litellm` and `msgspec` are installed::

    PYTHONPATH=tests:exporter python tests/client/recorded/litellm_calls.py
"""

import asyncio
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from litellm.integrations.custom_logger import CustomLogger

from support.fake_vllm import MODEL, FakeVLLM

FILE = Path(__file__).with_suffix(".json")
KEPT = ("call_type", "cache_hit", "model", "optional_params", "stream")


class Recorder(CustomLogger):
    """Keeps what it is told, as far as JSON has it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self.called = asyncio.Event()

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        metadata = kwargs["litellm_params"].get("metadata") or {}
        kept = {name: kwargs.get(name) for name in KEPT}
        kept["litellm_params"] = {
            "metadata": {"request_type": metadata.get("request_type")}
        }
        self.called.set()
        self.calls.append(
            {"kwargs": kept, "response": response_obj.model_dump(mode="json")}
        )


async def main() -> None:
    """Ask through both providers, whole and as a stream."""
    recorder = Recorder()
    litellm.callbacks = [recorder]
    with FakeVLLM() as vllm:
        for provider in ("hosted_vllm", "openai"):
            for stream in (False, True):
                recorder.called.clear()
                answer = await litellm.acompletion(
                    model=f"{provider}/{MODEL}",
                    api_base=f"{vllm.url}/v1",
                    api_key="CANARY-KEY",
                    messages=[{"role": "user", "content": "CANARY-PROMPT"}],
                    user="CANARY-USER",
                    temperature=0.3,
                    metadata={"request_type": "code"},
                    **(
                        {"stream": True, "stream_options": {"include_usage": True}}
                        if stream
                        else {}
                    ),
                )
                if stream:
                    async for _ in answer:
                        pass
                await asyncio.wait_for(recorder.called.wait(), 30)
                recorder.calls[-1]["provider"] = provider
    document = {
        "litellm": version("litellm"),
        "openai": version("openai"),
        "calls": recorder.calls,
    }
    FILE.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


asyncio.run(main())
