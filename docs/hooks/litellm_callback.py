"""LiteLLM: pushes the record of every response that does not stream, whichever provider
sent the request.

In the proxy's configuration, with this file beside it::

    litellm_settings:
      callbacks: litellm_callback.specdec
"""

import asyncio
import logging
import os
import threading
from collections import OrderedDict

from litellm.integrations.custom_logger import CustomLogger

from vllm_specdec_exporter.client import PushedRequest, PushFailedError, push_request

URL = os.environ.get("SPECDEC_PUSH_URL", "http://127.0.0.1:9850")
TOKEN_FILE = os.environ.get("SPECDEC_PUSH_TOKEN_FILE", "specdec-token")


# Enough for all requests between the two calls for one; an id takes some 100 bytes.
MOST_IDS = 10_000


class SpecDec(CustomLogger):
    """Pushes the record of a finished request."""

    def __init__(self):
        super().__init__()
        self.pushed = OrderedDict()
        self.lock = threading.Lock()

    def is_new(self, call_id):
        """Tell whether a call was not pushed before: for synchronous text completions
        LiteLLM calls back twice now and then, from two threads.
        """
        with self.lock:
            if call_id and call_id in self.pushed:
                return False
            self.pushed[call_id] = None
            if len(self.pushed) > MOST_IDS:
                self.pushed.popitem(last=False)
            return True

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        """Push a finished request; LiteLLM calls this after it has sent the
        response.
        """
        await asyncio.to_thread(
            self.log_success_event, kwargs, response_obj, start_time, end_time
        )

    def log_success_event(self, kwargs, response_obj, start_time, end_time):
        """Push a finished request of the synchronous API."""
        if kwargs.get("stream") or kwargs.get("cache_hit"):
            # LiteLLM assembles a stream without its `metrics`; a cached response has no
            # drafts
            return
        if not self.is_new(kwargs.get("litellm_call_id")):
            return
        if "text" in (kwargs.get("call_type") or ""):
            route = "completions"
        else:
            route = "chat"
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        usage = getattr(response_obj, "usage", None)
        metrics = getattr(response_obj, "metrics", None) or {}
        request = PushedRequest(
            model=getattr(response_obj, "model", "") or "",
            temperature=(kwargs.get("optional_params") or {}).get("temperature"),
            request_type=str(metadata.get("request_type") or route),
            completion_tokens=getattr(usage, "completion_tokens", None),
            speculative_decoding=metrics.get("speculative_decoding"),
        )
        try:
            push_request(request, URL, token_file=TOKEN_FILE)
        except PushFailedError as error:
            logging.getLogger("specdec").warning(
                "the request is not counted: %s", error
            )


specdec = SpecDec()
