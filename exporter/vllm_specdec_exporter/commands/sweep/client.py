"""The server of a sweep: its address, identity and API, its requests, and its counters
around a cell.

Counters are summed over all engines of the server, because a request may be sent to any
of them, and because tokens of another model are other traffic, too.
"""

import asyncio
import contextlib
import json
import ssl
import time
from itertools import zip_longest
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...config.files import TokenError, read_token
from ...config.options import ConfigError
from ...config.values import Target
from ...engines.reading import Counters, Reading, sum_known
from ...measures.history import Delta, Sample, counters_reset, delta
from ...upstream.client import (
    AGENT,
    CLOSED,
    PollError,
    Upstream,
    not_connected,
    untrusted,
)
from ...upstream.connection import UpstreamConfig, tls_context
from .grid import Request, SweepPlan
from .record import ServerIdentity
from .stream import AnswerError, Stream, StreamedAnswer, error_message

#: Interval of reading the counters while waiting, in seconds: longer than a step of
#: most servers.
BEAT = 0.25
#: Seconds without a change after which the counters count as at rest: two intervals.
QUIET = 0.5
#: Longest wait for that, in seconds. The cell's requests have ended, so whatever still
#: runs is of others.
MAX_REST = 15.0
#: The same if other traffic is allowed: it may never end.
MAX_BUSY_REST = 3.0


class CounterSample(Struct, frozen=True):
    """The server's parsed metrics at one time, in seconds of a monotonic clock."""

    time: float
    reading: Reading

    @property
    def total(self) -> Counters:
        """The sum of the counters of all engines."""
        engines = [engine.counters for engine in self.reading.engines]
        by_engine = [counters.accepted_tokens_per_position for counters in engines]
        positions = zip_longest(*by_engine, fillvalue=0.0)

        def total(name: str) -> float | None:
            return sum_known(getattr(counters, name) for counters in engines)

        return Counters(
            drafts=total("drafts"),
            draft_tokens=total("draft_tokens"),
            accepted_tokens=total("accepted_tokens"),
            accepted_tokens_per_position=tuple(map(sum, positions)),
            generation_tokens=total("generation_tokens"),
        )

    @property
    def generated(self) -> float:
        """Generated tokens of all engines; 0 if not known."""
        return self.total.generation_tokens or 0.0

    @property
    def requests(self) -> float:
        """Running and queued requests of all engines; 0 if not known."""
        requests = 0.0
        for engine in self.reading.engines:
            requests += engine.load.requests_running or 0.0
            requests += engine.load.requests_waiting or 0.0
        return requests


async def read_counters(server: Upstream) -> CounterSample:
    """Read the server's metrics; PollError if they cannot be read."""
    reading = await server.read()
    return CounterSample(time.monotonic(), reading)


async def rest(
    server: Upstream,
    since: CounterSample | None = None,
    tokens: float = 0.0,
    *,
    quiet: float,
    limit: float,
) -> tuple[CounterSample, str]:
    """Wait until the counters are at rest; return the last sample, and what kept
    them busy, if not.

    They are at rest if for `quiet` seconds no request ran or waited and nothing
    changed, and if since the sample `since` they rose by `tokens`. A restart since
    then ends the wait, and so do `limit` seconds.

    Raises:
        PollError: they cannot be read.
    """
    first = previous = await read_counters(server)
    changed = first.time
    expected = tokens
    if since is not None:
        expected += since.generated
    while True:
        await asyncio.sleep(BEAT)
        sample = await read_counters(server)
        # Its counters begin at 0: they would never rise by `tokens`.
        if since is not None and restarted(since, sample):
            return sample, ""
        busy = sample.requests > 0 or sample.generated < expected
        if busy or sample.total != previous.total:
            changed = sample.time
        if sample.time - changed >= quiet:
            return sample, ""
        waited = sample.time - first.time
        if waited >= limit:
            generated = sample.generated - first.generated
            return sample, (
                f"{sample.requests:g} requests running or waiting, {generated:g} "
                f"tokens generated within {waited:.1f} s"
            )
        previous = sample


def restarted(first: CounterSample, last: CounterSample) -> bool:
    """Return whether an engine restarted, appeared or disappeared between samples."""
    old = {engine.key: engine.counters for engine in first.reading.engines}
    for engine in last.reading.engines:
        counters = old.pop(engine.key, None)
        if counters is None or counters_reset(counters, engine.counters):
            return True
    return bool(old)


def between(first: CounterSample, last: CounterSample) -> Delta:
    """Return the increase over all engines between two samples without a restart."""
    return delta(Sample(first.time, first.total), Sample(last.time, last.total))


#: Seconds to keep an idle connection: less than the five after which vLLM closes it.
_KEPT_SECONDS = 2.0


class Endpoint(Struct, frozen=True):
    """A server: the only target in `upstream`, and the file with its API key.

    The key is sent with requests, and with requests for metrics if `upstream` has no
    token.
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
        return self.target.url.partition("?")[0].rstrip("/").removesuffix("/metrics")

    @property
    def metrics(self) -> UpstreamConfig:
        """Connection settings for its metrics."""
        return replace(
            self.upstream,
            bearer_token_file=self.upstream.bearer_token_file or self.api_key_file,
        )

    def open(self) -> aiohttp.ClientSession:
        """Return a session for requests; ConfigError if a file cannot be used."""
        headers = dict(AGENT)
        path = self.api_key_file or self.upstream.bearer_token_file
        if path:
            try:
                headers["Authorization"] = f"Bearer {read_token(path)}"
            except TokenError as error:
                shown = json.dumps(path, ensure_ascii=False)
                raise ConfigError(f"--api-key-file {shown}: {error}") from error
        connector: aiohttp.BaseConnector
        # No limit of connections: the number of workers is the load that is measured.
        if self.target.socket:
            connector = aiohttp.UnixConnector(
                self.target.socket, limit=0, keepalive_timeout=_KEPT_SECONDS
            )
        else:
            connector = aiohttp.TCPConnector(
                ssl=tls_context(self.upstream),
                limit=0,
                keepalive_timeout=_KEPT_SECONDS,
            )
        return aiohttp.ClientSession(
            connector=connector,
            # `asyncio.timeout` spans each exchange.
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self.upstream.request_headers(headers),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


#: Bytes of an error document: a thousand times what vLLM sends.
_MAX_BODY = 1024 * 1024

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class Client(Struct, frozen=True):
    """Sends requests to an API, each within `timeout` seconds."""

    endpoint: Endpoint
    session: aiohttp.ClientSession
    timeout: float

    async def ask(self, request: Request, number: int = 0) -> StreamedAnswer:
        """Send request `number` of a cell; return its response, with an error in it if
        it failed.
        """
        started = time.monotonic()
        try:
            return await self.receive(request, number)
        except AnswerError as error:
            return StreamedAnswer(
                request=number,
                prompt=request.prompt,
                error=str(error),
                seconds=time.monotonic() - started,
            )

    async def receive(self, request: Request, number: int = 0) -> StreamedAnswer:
        """Send request `number` of a cell and return its response; AnswerError if it
        is not complete.
        """
        try:
            async with asyncio.timeout(self.timeout):
                stream = Stream(time.monotonic())
                # A redirect would send the API key to another address.
                async with self.session.post(
                    self.endpoint.base + _PATHS[request.api],
                    data=msgspec.json.encode(request.body),
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                    server_hostname=self.endpoint.upstream.server_name or None,
                ) as response:
                    if response.status != 200:
                        raise await _refusal(response)
                    async for data in response.content.iter_any():
                        stream.feed(data, time.monotonic())
                return stream.answer(number, request.prompt, time.monotonic())
        except TimeoutError as error:
            why = f"no complete response within {self.timeout:g} s"
            raise AnswerError(why, 0) from error
        except aiohttp.ClientError as error:
            raise AnswerError(str(_translate(error)), 0) from error
        except (OSError, ValueError) as error:
            raise AnswerError(f"not an HTTP response: {error}", 0) from error


def _translate(error: aiohttp.ClientError) -> PollError:
    """Return the reason of a failed exchange."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError):
        return untrusted(cause)
    if isinstance(error, aiohttp.ClientConnectorError):
        return not_connected(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return PollError("reset", CLOSED)
    if isinstance(error, aiohttp.ClientPayloadError):
        return PollError("malformed", f"the response was cut off: {error}")
    return PollError("malformed", f"not an HTTP response: {error}")


async def _refusal(response: aiohttp.ClientResponse) -> AnswerError:
    """Return the error of a response that is no stream, with the server's message."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > _MAX_BODY:
            break
    status = f"HTTP {response.status} {response.reason or ''}".rstrip()
    with contextlib.suppress(ValueError, RecursionError):
        message = error_message(json.loads(body))
        if message:
            status += f": {message}"
    return AnswerError(status, response.status)


class Unreachable(Exception):  # noqa: N818 - it names the fault
    """The server cannot be reached, is no OpenAI endpoint, or has no metrics.

    The message is one line.
    """


def without_api(target: Target) -> Target:
    """Return the target of the metrics for an address that may be that of the API
    (``/v1``).
    """
    if target.socket:
        return target
    scheme, host, path, _, _ = urlsplit(target.url)
    if "/metrics" not in path:
        path = f"{path.rstrip('/').removesuffix('/v1')}/metrics"
    return replace(target, url=urlunsplit((scheme, host, path, "", "")))


async def identify_server(name: str, server: Upstream, model: str) -> ServerIdentity:
    """Return the identity of the server called `name`; an empty `model` means its only
    one.

    Unreachable if it cannot be measured, ConfigError if `model` is needed.
    """
    try:
        reading = await server.read()
    except PollError as error:
        raise Unreachable(f"{name} cannot be measured: {error}") from error
    if not reading.engines:
        raise Unreachable(
            f"{name} cannot be measured: its metrics show no engine of vLLM"
        )
    models = set()  # of several engines, which may have one model
    depth = 0
    for engine in reading.engines:
        models.add(engine.key.model_name)
        depth = max(depth, len(engine.counters.accepted_tokens_per_position))
    if not model and len(models) > 1:
        served = ", ".join(sorted(models))
        raise ConfigError(f"--model is needed: the server has {served}")
    return ServerIdentity(
        target=name,
        model=model or models.pop(),
        version=await server.version(),
        dialect=reading.dialect,
        num_speculative_tokens=depth,
    )


async def check_requests(client: Client, plan: SweepPlan) -> None:
    """Send one short request; ConfigError if the server refuses it, Unreachable if it
    does not answer.
    """
    # One token is enough: a refusal is about the form of the request.
    short = replace(plan, max_tokens=1)
    try:
        await client.receive(short.request(0, plan.prompts[0].prompts[0]))
    except AnswerError as error:
        why = str(error)
        if error.status in (400, 413, 422):
            # vLLM says so of base models, whose tokenizer has none.
            if "chat template" in why.lower():
                why += "; --api completions needs none"
            raise ConfigError(f"the server refuses such requests: {why}") from error
        if error.status in (401, 403):
            why += "; see --api-key-file"
        raise Unreachable(f"the server does not answer requests: {why}") from error
