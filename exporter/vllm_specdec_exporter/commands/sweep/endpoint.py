"""The endpoint of a sweep: its address, its identity, and its API."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from ...config.bearer_token import TokenError, read_token
from ...config.options import ConfigError
from ...config.values import parse_target
from ...serve.upstream import PollError
from ...serve.upstream_tls import UpstreamConfig
from .client import EndpointError
from .record import ServerIdentity

if TYPE_CHECKING:
    from ...config.values import Target
    from ...serve.upstream import Upstream
    from .client import Client
    from .counters import CounterReader
    from .grid import SweepPlan


class Unreachable(Exception):  # noqa: N818 - it names the fault
    """The server cannot be reached, is no OpenAI endpoint, or has no metrics. The message is one line."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server: the only target in `upstream`, and the file with its API key.

    The key is sent with requests, and with requests for metrics if `upstream` has no token.
    """

    upstream: UpstreamConfig
    api_key_file: str = ""

    @property
    def target(self) -> Target:
        """The address of its metrics."""
        return self.upstream.targets[0]

    @property
    def base(self) -> str:
        """Its address without ``/v1``."""
        return self.target.url.partition("?")[0].removesuffix("/metrics")

    @property
    def metrics(self) -> UpstreamConfig:
        """Connection settings for its metrics."""
        return replace(self.upstream, bearer_token_file=self.upstream.bearer_token_file or self.api_key_file)

    def authorization(self) -> dict[str, str]:
        """Return the headers with the API key; ConfigError if the file is invalid."""
        path = self.api_key_file or self.upstream.bearer_token_file
        if not path:
            return {}
        try:
            return {"Authorization": f"Bearer {read_token(path)}"}
        except TokenError as error:
            shown = json.dumps(path, ensure_ascii=False)
            raise ConfigError(f"--api-key-file {shown}: {error}") from error


def without_api(target: Target) -> Target:
    """Return the target of the metrics for an address that may be that of the API (``/v1``)."""
    if target.socket:
        return target
    scheme, host, path, _, _ = urlsplit(target.url)
    path = path.removesuffix("/metrics").removesuffix("/v1")
    return replace(target, url=urlunsplit((scheme, host, f"{path}/metrics", "", "")))


def endpoint(url: str, *, api_key_file: str = "") -> Endpoint:
    """Return the endpoint at an address, with or without ``/v1``, or raise ValueError."""
    return Endpoint(UpstreamConfig(targets=(without_api(parse_target(url)),)), api_key_file)


async def identify(name: str, counters: CounterReader, upstream: Upstream, model: str) -> ServerIdentity:
    """Return the identity of the server called `name`; an empty `model` means its only one.

    Unreachable if it cannot be measured, ConfigError if `model` is needed.
    """
    try:
        reading = (await counters.read()).reading
    except PollError as error:
        raise Unreachable(f"{name} cannot be measured: {error}") from error
    if not reading.engines:
        raise Unreachable(f"{name} cannot be measured: its metrics show no engine of vLLM")
    models = sorted({engine.key.model_name for engine in reading.engines})
    if not model and len(models) > 1:
        raise ConfigError(f"--model is needed: the server has {', '.join(models)}")
    return ServerIdentity(
        target=name,
        model=model or models[0],
        version=await upstream.version(),
        dialect=reading.dialect,
        num_speculative_tokens=max(
            len(engine.counters.accepted_tokens_per_position) for engine in reading.engines
        ),
    )


async def check_requests(client: Client, plan: SweepPlan) -> None:
    """Send one short request; ConfigError if the server refuses it, Unreachable if it does not answer."""
    try:
        await client.probe(replace(plan, max_tokens=1).request(0, plan.prompts[0].prompts[0]))
    except EndpointError as error:
        if error.status in (400, 413, 422):
            hint = "; --api completions needs none" if "chat template" in str(error).lower() else ""
            raise ConfigError(f"the server refuses such requests: {error}{hint}") from error
        hint = "; see --api-key-file" if error.status in (401, 403) else ""
        raise Unreachable(f"the server does not answer requests: {error}{hint}") from error
