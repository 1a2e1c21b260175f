"""openai: observes what a client of the `openai` package asks, and what it is answered.

::

    client = observed(OpenAI(base_url="http://vllm:8000/v1"), reporter, request_type="code")

What a call sends as ``X-Request-Type`` (``extra_headers``) is its type, before any other.
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
    """Return a client like `client`, with all its settings, that reports what passes through it.

    Close it as you would close the other, whose connections are its own.

    Args:
        client: an `OpenAI`, an `AsyncOpenAI` or one of their kind, such as `AzureOpenAI`.
        reporter: what observations go to.
        http_client: the client of httpx to use, which is observed from now on; by default one like that
            which `openai` makes itself.
        ask_for_usage: whether to ask streams for their usage where they say nothing of it, which vLLM needs
            to send the record, and to hide the event that comes of it.
        labels: how requests are classified, see `Labels`.

    Raises:
        ImportError: `openai` is not installed.
        TypeError: no client of `openai`.
        ValueError: no such rule, or a client whose own ``http_client`` would be lost.
    """
    try:
        import openai
    except ImportError as error:
        msg = "observed() needs the package openai: pip install openai"
        raise ImportError(msg) from error
    if not isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)):
        msg = f"a client of openai is expected, not {type(client).__name__}"
        raise TypeError(msg)
    if http_client is None:
        _refuse_custom(openai, client)
        if isinstance(client, openai.OpenAI):
            http_client = openai.DefaultHttpxClient()
        else:
            http_client = openai.DefaultAsyncHttpxClient()
    http_client = observe(http_client, reporter, ask_for_usage=ask_for_usage, **labels)
    return cast("Client", client.with_options(http_client=http_client))


def _refuse_custom(openai: Any, client: Any) -> None:
    """Refuse a client that was given an ``http_client``: no proxy and no certificate is lost in silence.

    `openai` tells nobody what it was given. Should the attribute have another name one day, none is refused.
    """
    given = getattr(client, "_client", None)
    public = (openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient)
    if given is None or (type(given) not in public and type(given).__module__.startswith("openai.")):
        return
    msg = (
        "this client has an http_client of its own: pass it as http_client, or observe it before: "
        "OpenAI(http_client=observe(http_client, reporter))"
    )
    raise ValueError(msg)
