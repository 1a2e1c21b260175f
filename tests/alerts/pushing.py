"""Requests that a gateway pushes to a real exporter while a test looks on."""

import contextlib
import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.programs import eventually

TOKEN = "let-me-push"
_SECONDS = 30.0


def _requests() -> bytes:
    """Return requests of one type that gains and of one that loses, as a gateway pushes
    them.
    """
    requests = [
        {
            "model": "MODEL",
            "temperature": temperature,
            "request_type": name,
            "stream": True,
            "completion_tokens": 40,
            "time_to_first_token_seconds": 0.1,
            "time_per_output_token_seconds": 0.02,
            "speculative_decoding": {
                "num_spec_steps": 15,
                "num_draft_tokens": 30,
                "num_accepted_draft_tokens": accepted,
            },
        }
        for name, temperature, accepted in (("chat", 0.0, 25), ("summary", 0.9, 6))
    ]
    return json.dumps({"requests": requests}).encode()


@contextlib.contextmanager
def pushing(address: str) -> Iterator[None]:
    """Push requests to an exporter that takes `TOKEN`, again and again; a rejection is
    an error.

    They are known to it once this is entered.
    """
    done = threading.Event()
    push = urllib.request.Request(
        f"http://{address}/api/v1/requests",
        _requests(),
        {"Authorization": f"Bearer {TOKEN}"},
    )

    def go_on() -> None:
        while not done.wait(0.2):
            assert _document(push)["rejected"] == 0

    with ThreadPoolExecutor(1) as pool:
        pushes = pool.submit(go_on)
        try:
            eventually(
                lambda: _document(f"http://{address}/api/v1/snapshot")["requests"][
                    "models"
                ]
            )
            yield
        finally:
            done.set()
            pushes.result()


def _document(request: str | urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return json.load(answer)
