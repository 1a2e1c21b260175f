"""How the V0 engine (vLLM 0.9.2 and before) measured speculation."""

import math

from .measurements import Measurements
from .speculation import DraftTotals

_INTERVAL_SECONDS = 5.0


class V0Sampler:
    """Samples the totals every 5 s, as the V0 engine did.

    Its counters were raised at each sample by the totals since the start, so they are sums of
    running totals and their rate means nothing; its two gauges are means since the start.
    """

    def __init__(self, num_speculative_tokens: int) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        self._samples = 0

    def observe(self, now: float, totals: DraftTotals, measurements: Measurements) -> None:
        """Take the samples that have become due by now."""
        due = math.floor(now / _INTERVAL_SECONDS)
        times, self._samples = due - self._samples, due
        if times <= 0 or totals.draft_tokens == 0:
            return
        emitted = totals.accepted_tokens + totals.drafts
        possible = totals.drafts * (self._num_speculative_tokens + 1)
        measurements.set("v0_draft_acceptance_rate", totals.accepted_anywhere / totals.draft_tokens)
        measurements.set("v0_efficiency", emitted / possible)
        measurements.add("v0_num_accepted_tokens", totals.accepted_anywhere * times)
        measurements.add("v0_num_draft_tokens", totals.draft_tokens * times)
        measurements.add("v0_num_emitted_tokens", emitted * times)
        measurements.add("v0_samples", times)
