"""A gateway in Python: pushes the record of each response of vLLM, outside of the
request's path.

The gateway calls `report(request, response)` after it has sent a response, with both as
decoded JSON. For a stream, `response` is the last event, which has `usage`.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore

from vllm_specdec_exporter.client import PushedRequest, PushFailedError, push_request

URL = "http://127.0.0.1:9850"
TOKEN_FILE = Path("specdec-token")
pool = ThreadPoolExecutor(max_workers=1)
room = BoundedSemaphore(20)


def report(request, response):
    """Push a response in another thread; if 20 wait already, it is not counted.

    Never blocks.
    """
    if room.acquire(blocking=False):
        pool.submit(push, request, response).add_done_callback(lambda _: room.release())


def push(request, response):
    """Push a response.

    If the exporter is not available, the response is not counted.
    """
    usage = response.get("usage") or {}
    metrics = response.get("metrics") or {}
    observed = PushedRequest(
        model=response.get("model", ""),
        temperature=request.get("temperature"),
        request_type="chat" if "messages" in request else "completions",
        stream=request.get("stream") is True,
        completion_tokens=usage.get("completion_tokens"),
        speculative_decoding=metrics.get("speculative_decoding"),
    )
    try:
        push_request(observed, URL, token_file=TOKEN_FILE)
    except PushFailedError as error:
        logging.getLogger("specdec").warning("the request is not counted: %s", error)
