"""Observes the requests of a client of the `openai` package.

::

    client = observed(OpenAI(base_url="http://vllm:8000/v1"), reporter, request_type="code")

The header ``X-Request-Type`` of a call (``extra_headers``) takes precedence over `request_type`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .httpx_transport import observe

if TYPE_CHECKING:
    from typing import TypeVar, Unpack

    from .reporter import Reporter
    from .watch import Labels

    Client = TypeVar("Client")


def observed(
    client: Client,
    reporter: Reporter,
    *,
    http_client: Any = None,
    ask_for_usage: bool = False,
    **labels: Unpack[Labels],
) -> Client:
    """Return a copy of `client`, with all its settings, whose requests are reported.

    The copy has its own connections; close it like `client`.

    Args:
        client: an `OpenAI`, an `AsyncOpenAI` or a subclass, such as `AzureOpenAI`.
        reporter: receives the observations.
        http_client: the httpx client to use and observe; by default one like that of `openai`.
        ask_for_usage: as in `.httpx_transport.observe`.
        labels: how requests are classified, see `Labels`.

    Raises:
        ImportError: `openai` is not installed.
        TypeError: not a client of `openai`.
        ValueError: an invalid rule, or `client` was created with its own ``http_client``.
    """
    try:
        import openai
    except ImportError as error:
        raise ImportError("observed() needs the package openai: pip install openai") from error
    if not isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)):
        raise TypeError(f"a client of openai is expected, not {type(client).__name__}")
    if http_client is None:
        _refuse_custom(openai, client)
        plain = isinstance(client, openai.OpenAI)
        http_client = openai.DefaultHttpxClient() if plain else openai.DefaultAsyncHttpxClient()
    http_client = observe(http_client, reporter, ask_for_usage=ask_for_usage, **labels)
    return cast("Client", client.with_options(http_client=http_client))


def _refuse_custom(openai: Any, client: Any) -> None:
    """Refuse a client with its own ``http_client``, whose proxies and certificates would be lost silently.

    `openai` has no public attribute for it. If the private one is renamed, every client is accepted.
    """
    given = getattr(client, "_client", None)
    public = (openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient)
    if given is None or (type(given) not in public and type(given).__module__.startswith("openai.")):
        return
    raise ValueError(
        "this client was created with an http_client: pass it as http_client, or observe it before: "
        "OpenAI(http_client=observe(http_client, reporter))"
    )
