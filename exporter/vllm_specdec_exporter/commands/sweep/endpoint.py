"""The endpoint of a sweep: its address, its identity, and its API."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from ...config.bearer_token import TokenError, read_token
from ...config.options import ConfigError
from ...config.values import parse_target
from ...serve.tls import UpstreamConfig
from .client import EndpointError, Sampling, ServedModel
from .counters import CountersError
from .record import ServerIdentity

if TYPE_CHECKING:
    from ...config.values import Target
    from ...serve.upstream import Upstream
    from .client import Client
    from .counters import CounterReader, CounterSample
    from .grid import Prompt

#: Statuses of a server without an API.
_NO_SUCH_API = frozenset({404, 405, 501})


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
        token = self.upstream.bearer_token_file or self.api_key_file
        return replace(self.upstream, bearer_token_file=token)

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


async def identify(
    name: str, client: Client, counters: CounterReader, upstream: Upstream, model: str
) -> ServerIdentity:
    """Return the identity of the server called `name`; an empty `model` means its only one.

    Unreachable if it cannot be measured, ConfigError if `model` does not fit.
    """
    trouble = ""
    observation: CounterSample | None = None
    try:
        observation = await counters.read()
    except CountersError as error:
        if error.gone:
            raise Unreachable(f"{name} cannot be reached: {error}") from error
        trouble = str(error)
    try:
        models = await client.models()
    except EndpointError as error:
        raise Unreachable(_no_models(name, error)) from error
    if observation is None or not observation.reading.engines:
        raise Unreachable(f"{name} has no vLLM metrics: {trouble or 'they show no engine'}")
    chosen, reading = choose(models, model), observation.reading
    k = max((len(engine.counters.accepted_tokens_per_position) for engine in reading.engines), default=0)
    return ServerIdentity(
        target=name,
        model=chosen.name,
        root=chosen.root,
        version=await upstream.version(),
        dialect=reading.dialect,
        num_speculative_tokens=k,
    )


def _no_models(name: str, error: EndpointError) -> str:
    if error.status == 0:
        return f"{name} cannot be reached: {error}"
    if error.status in (401, 403):
        return f"{name} wants an API key (GET /v1/models: {error}); see --api-key-file"
    return f"{name} answers, but is no OpenAI endpoint: GET /v1/models: {error}"


def choose(models: tuple[ServedModel, ...], name: str) -> ServedModel:
    """Return the model of that name, or the only one if the name is empty; else ConfigError."""
    known = ", ".join(model.name for model in models)
    if not name:
        if len(models) == 1:
            return models[0]
        raise ConfigError(f"--model is needed: the server has {known}")
    for model in models:
        if model.name == name:
            return model
    shown = json.dumps(name, ensure_ascii=False)
    raise ConfigError(f"--model {shown}: the server has no such model; it has {known}")


async def settle_api(client: Client, sampling: Sampling, prompt: Prompt) -> tuple[str, str]:
    """Send one request to find the API of the server; return its name, and why it is not chat.

    ConfigError if the server refuses such requests, Unreachable if it does not respond.
    """
    why = ""
    api = "chat" if sampling.api == "auto" else sampling.api
    try:
        await client.probe(replace(sampling, api=api), prompt)
    except EndpointError as error:
        template = error.status == 400 and "chat template" in str(error).lower()
        if sampling.api != "auto" or not (template or error.status in _NO_SUCH_API):
            raise _refused(api, error) from error
        why, api = str(error), "completions"
        try:
            await client.probe(replace(sampling, api=api), prompt)
        except EndpointError as other:
            raise _refused(api, other) from other
    return api, why


def _refused(api: str, error: EndpointError) -> Exception:
    if error.status in (400, 413, 422):
        return ConfigError(f"the server refuses such requests ({api}): {error}")
    return Unreachable(f"the server does not answer requests ({api}): {error}")
