"""Acceptance of single requests: drafted and accepted tokens, latencies, and which
requests lose.

vLLM's `/metrics` has only sums over all requests, and an average hides a losing
minority. Since 0.29 vLLM can add a record of speculation to each response
(``--per-request-spec-decode-metrics``). The data flow::

    bytes of a request and its response -> Exchange -> Observation
        -> RequestAggregator (groups, windows) -> acceptance -> RequestsResult
        -> publish

Observations come from the tap, from pushes, and from files of recorded responses. They
never contain prompts, texts, keys or user names.
"""
