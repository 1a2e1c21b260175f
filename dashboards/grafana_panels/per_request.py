"""Per-request series: what the dashboard *Requests* shows once an exporter publishes them.

vLLM's `/metrics` has no acceptance by request, and this exporter's does not either so far. These are the
names under which it will stand: histograms by temperature bucket and by type of request.
"""

from __future__ import annotations

from . import promql
from .variables import ENGINE_LABELS, selector

ACCEPTANCE = "vllm_specdec_request_acceptance_ratio"
TPOT = "vllm_specdec_request_time_per_output_token_seconds"
TTFT = "vllm_specdec_request_time_to_first_token_seconds"
#: Requests, and the tokens that they generated, by what speculation did to them: `loses`, `break_even`, `gains`.
REQUESTS = "vllm_specdec_request_outcomes_total"
TOKENS = "vllm_specdec_request_generation_tokens_total"

TEMPERATURE, TYPE = "temperature", "request_type"
OUTCOMES = {"gains": "gains", "break_even": "break-even", "loses": "loses"}

#: Requests come in at a server, before anybody knows which engine serves them.
SELECT = selector([label for label in ENGINE_LABELS if label not in ("engine", "target")])


def counted(name: str, by: str = "", **matchers: str) -> str:
    """Return the rate of a per-request counter, summed."""
    return promql.counted(name, SELECT, by, **matchers)


def quantile(name: str, share: float, by: str = "") -> str:
    """Return a quantile of a per-request histogram."""
    return promql.quantile(name, SELECT, share, by)
