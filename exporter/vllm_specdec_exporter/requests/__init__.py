"""Single requests: drafts, acceptance and latency by request, type, temperature and tenant.

vLLM's `/metrics` adds all requests up, and an average hides a losing minority. Since 0.29 vLLM can put a
record of speculation into each answer (``--per-request-spec-decode-metrics``). One walk from there::

    bytes of a request and its answer -> Exchange -> Observation -> RequestAggregator (groups, windows)
          -> judgement -> RequestsResult -> publish

Observations come from the tap, from pushes, and from files of recorded answers. No prompt, no answer, no key
and no user's name enters one.
"""
