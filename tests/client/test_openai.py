"""Clients of the `openai` package that report."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from client.collector import Collector, arrived
from support.fake_vllm import COMPLETION_TOKENS, MODEL, RECORD, FakeVLLM
from support.programs import clean_environment
from vllm_specdec_exporter.client import Reporter
from vllm_specdec_exporter.client.openai import observed
from vllm_specdec_exporter.requests.observation import parse_record

MESSAGES: Any = [{"role": "user", "content": "CANARY-PROMPT"}]
ASKED: Any = {"model": MODEL, "messages": MESSAGES, "temperature": 0.3, "user": "CANARY-USER"}
USAGE: Any = {"stream": True, "stream_options": {"include_usage": True}}
TEXT = "CANARY-ANSWER one two three "


@pytest.fixture
def client(vllm: FakeVLLM, reporter: Reporter) -> Iterator[openai.OpenAI]:
    """A client that reports, with settings of its own."""
    plain = openai.OpenAI(
        base_url=f"{vllm.url}/v1",
        api_key="CANARY-KEY",
        timeout=170.0,
        max_retries=1,
        default_headers={"X-Mine": "1"},
    )
    with plain, observed(plain, reporter, request_type="rag") as client:
        yield client


class TestSync:
    def test_whole(
        self, client: openai.OpenAI, vllm: FakeVLLM, reporter: Reporter, collector: Collector
    ) -> None:
        """Address, key, timeout, retries and headers are those of the client that was observed."""
        assert (client.timeout, client.max_retries, client.api_key) == (170.0, 1, "CANARY-KEY")
        answer = client.chat.completions.create(**ASKED)

        assert answer.choices[0].message.content == "CANARY-ANSWER"
        [found] = arrived(reporter, collector)
        assert (found.model_name, found.temperature, found.request_type) == (MODEL, 0.3, "rag")
        assert (found.completion_tokens, found.record) == (COMPLETION_TOKENS, parse_record(RECORD))
        assert str(client.base_url) == f"{vllm.url}/v1/"
        assert vllm.asked[0].headers["x-mine"] == "1"
        assert vllm.asked[0].headers["authorization"] == "Bearer CANARY-KEY"
        assert vllm.asked[0].json == ASKED

    def test_errors(
        self, client: openai.OpenAI, reporter: Reporter, collector: Collector, vllm: FakeVLLM
    ) -> None:
        """Errors are openai's own, and retries go on."""
        vllm.script.status = 500
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**ASKED)
        assert len(vllm.asked) == 2
        assert arrived(reporter, collector) == []
        assert reporter.unobserved == {"refused": 2}

    def test_with_options(self, client: openai.OpenAI, reporter: Reporter, collector: Collector) -> None:
        """A client made from an observed one is observed, once. A call may name its type."""
        with pytest.raises(ValueError, match="was created with an http_client"):
            observed(client, reporter)
        headers = {"X-Request-Type": "code"}
        client.with_options(timeout=90.0).chat.completions.create(**ASKED, extra_headers=headers)

        assert [one.request_type for one in arrived(reporter, collector)] == ["code"]


async def test_the_asynchronous_client(vllm: FakeVLLM, reporter: Reporter, collector: Collector) -> None:
    """The asynchronous client, whole and as a stream."""
    async with (
        openai.AsyncOpenAI(base_url=f"{vllm.url}/v1", api_key="CANARY-KEY", timeout=90.0) as plain,
        observed(plain, reporter, request_type="rag") as client,
    ):
        assert client.timeout == 90.0
        answer = await client.chat.completions.create(**ASKED)
        stream = await client.chat.completions.create(**ASKED, **USAGE)
        chunks = [chunk async for chunk in stream]

    assert answer.choices[0].message.content == "CANARY-ANSWER"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
    found = arrived(reporter, collector)
    assert [(one.stream, one.request_type) for one in found] == [(False, "rag"), (True, "rag")]
    assert {one.record == parse_record(RECORD) for one in found} == {True}


def test_azure(vllm: FakeVLLM, reporter: Reporter, collector: Collector) -> None:
    """A gateway that looks like Azure, with its own paths and keys."""
    with (
        openai.AzureOpenAI(azure_endpoint=vllm.url, api_version="2024-06-01", api_key="CANARY-KEY") as plain,
        observed(plain, reporter) as client,
    ):
        assert isinstance(client, openai.AzureOpenAI)
        client.chat.completions.create(**ASKED)

    assert vllm.asked[0].headers["api-key"] == "CANARY-KEY"
    assert vllm.asked[0].path.endswith("/chat/completions?api-version=2024-06-01")
    assert [one.record for one in arrived(reporter, collector)] == [parse_record(RECORD)]


class TestHttpClients:
    def test_proxies_of_the_environment(
        self, vllm: FakeVLLM, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An observed client goes through the proxy that the other would go through."""
        monkeypatch.setenv("HTTP_PROXY", vllm.url)
        monkeypatch.setenv("NO_PROXY", "")
        with (
            openai.OpenAI(base_url="http://far.invalid/v1", api_key="x", max_retries=0) as plain,
            observed(plain, reporter) as client,
        ):
            client.chat.completions.create(**ASKED)
        assert vllm.asked[0].headers["host"] == "far.invalid"

    @pytest.mark.parametrize("make", [httpx.Client, openai.DefaultHttpxClient])
    def test_one_of_ones_own(
        self, make: Any, vllm: FakeVLLM, reporter: Reporter, collector: Collector
    ) -> None:
        """A client with its own HTTP client is refused, unless that is passed as `http_client`."""
        own = make()
        own.headers["X-Own"] = "1"
        with openai.OpenAI(base_url=f"{vllm.url}/v1", api_key="x", http_client=own) as plain:
            with pytest.raises(ValueError, match="was created with an http_client: pass it as http_client"):
                observed(plain, reporter)
            observed(plain, reporter, http_client=own).chat.completions.create(**ASKED)
        assert vllm.asked[0].headers["x-own"] == "1"
        assert len(arrived(reporter, collector)) == 1

    def test_no_client(self, reporter: Reporter) -> None:
        """What is no client of openai is an error that says so."""
        with httpx2.Client() as thing, pytest.raises(TypeError, match="a client of openai is expected"):
            observed(thing, reporter)


def test_without_openai() -> None:
    """Where openai is not installed, the error names it."""
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "from vllm_specdec_exporter.client.openai import observed\n"
        "try: observed(None, None)\n"
        "except ImportError as error: assert 'pip install openai' in str(error)\n"
        "else: raise SystemExit(1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], env=clean_environment(), timeout=60).returncode == 0
