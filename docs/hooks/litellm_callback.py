"""LiteLLM: pushes the record of every answer that does not stream, whichever provider asked vLLM.

In the proxy's configuration, with this file beside it::

    litellm_settings:
      callbacks: litellm_callback.specdec
"""

import os

from litellm.integrations.custom_logger import CustomLogger

from vllm_specdec_exporter.client import Reporter
from vllm_specdec_exporter.requests.push_schema import PushedRequest

reporter = Reporter(
    os.environ.get("SPECDEC_PUSH_URL", "http://127.0.0.1:9850"),
    token_file=os.environ.get("SPECDEC_PUSH_TOKEN_FILE", "specdec-token"),
)


class SpecDec(CustomLogger):
    """Reports what vLLM told of its drafts."""

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        """Take a finished request."""
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs, response_obj, start_time, end_time):
        """Take a finished request of the synchronous API."""
        if kwargs.get("stream") or kwargs.get("cache_hit"):
            return  # LiteLLM puts a stream together without its `metrics`; a cached answer drafted nothing
        route = "completions" if "text" in (kwargs.get("call_type") or "") else "chat"
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        usage = getattr(response_obj, "usage", None)
        metrics = getattr(response_obj, "metrics", None) or {}
        reporter.report(
            PushedRequest(
                model=getattr(response_obj, "model", "") or "",
                temperature=(kwargs.get("optional_params") or {}).get("temperature"),
                request_type=str(metadata.get("request_type") or route),
                completion_tokens=getattr(usage, "completion_tokens", None),
                speculative_decoding=metrics.get("speculative_decoding"),
            )
        )


specdec = SpecDec()
