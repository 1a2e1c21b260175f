"""One simulated engine: the steps of its batch, and the values that servers publish about them."""

import math
from random import Random

from .families import Measurements
from .scheduler import Scheduler, SimulatedRequest
from .speculation import Conditions, EngineConfig, Totals, sample_drafts

# Steps are drawn in groups of about this many seconds: fast, and finer than any scrape interval.
_GROUP_SECONDS = 0.1
_RESOLUTION = 1e-9


class Engine:
    """The state of one engine since its server started."""

    def __init__(self, config: EngineConfig, num_speculative_tokens: int | None, rng: Random):
        self.num_speculative_tokens = num_speculative_tokens  # K, or None without speculation
        self.measurements = Measurements(config.max_model_len)  # the published values
        self.totals = Totals.empty(num_speculative_tokens or 0)
        self.now = 0.0  # simulated seconds since the server started
        self.busy_seconds = 0.0  # simulated seconds spent in steps
        self.config = config
        self._rng = rng
        self._scheduler = Scheduler(config, rng)
        self._until = 0.0
        self._thinking_since = 0.0
        self._v0 = _V0Sampler(num_speculative_tokens or 0)
        self.measurements.set("engine_sleep_state", 1, "awake")

    def advance(self, seconds: float, conditions: Conditions) -> None:
        """Simulate seconds. Only whole steps are executed; the rest counts for the next call."""
        self._until += seconds
        while self._until - self.now > _RESOLUTION:
            if not self._advance_once(conditions):
                break
            self._v0.observe(self.now, self.totals, self.measurements)
        self._set_load_gauges()
        _set_lmdeploy_values(self.measurements, self.totals)
        if self.busy_seconds:
            self._set_sglang_gauges()

    def _advance_once(self, conditions: Conditions) -> bool:
        """Execute one group of steps, or skip idle time; return False if the time is too short."""
        step = self._step_seconds(conditions)
        scheduler = self._scheduler
        if not scheduler.running and not scheduler.waiting:
            available = self._until - self.now
            skipped = available if conditions.traffic.clients <= 0 else min(available, step)
            self.now += skipped
        elif step > self._until - self.now + _RESOLUTION:
            return False
        elapsed, self._thinking_since = self.now - self._thinking_since, self.now
        scheduler.arrive(conditions.traffic, self.now, elapsed, step)
        admitted = scheduler.admit()
        if admitted:
            self._prefill(admitted, conditions)
            if scheduler.waiting:
                return True  # the next step prefills, too
        step = self._step_seconds(conditions)
        available = self._until - self.now + _RESOLUTION
        if scheduler.running and available >= step:
            steps = max(1, math.floor(min(_GROUP_SECONDS, available) / step))
            self._decode(steps, conditions)
        return True

    def _step_seconds(self, conditions: Conditions, prefill_tokens: int = 0) -> float:
        positions = self.num_speculative_tokens or 0
        mean_draft_tokens = conditions.drafts.mean_draft_tokens(positions)
        if conditions.drafts.draft_probability == 0.0:
            positions = 0
        return self.config.step_cost.step_seconds(
            len(self._scheduler.running), mean_draft_tokens, positions, prefill_tokens
        )

    def _prefill(self, admitted: list[SimulatedRequest], conditions: Conditions) -> None:
        """Execute one step that prefills admitted requests and decodes the others."""
        computed = sum(request.prefill_tokens for request in admitted)
        seconds = self._step_seconds(conditions, computed)
        decoding = len(self._scheduler.running) - len(admitted)
        started_at = self.now
        self._advance_clock(seconds)
        tokens = self._generate(decoding, 1, seconds, conditions)
        for request in admitted:
            self._finish_prefill(request, started_at)
        self.measurements.observe("iteration_tokens_total", computed + tokens + len(admitted))
        self._finish_requests()

    def _finish_prefill(self, request: SimulatedRequest, started_at: float) -> None:
        """Count the prefill of a request and its first token."""
        counts = self.measurements
        request.generated += 1
        self.totals.generation_tokens += 1
        counts.add("generation_tokens", 1)
        if request.preemptions:
            # A preempted request is recomputed; its client observes one long inter-token latency.
            counts.observe("inter_token_latency_seconds", self.now - request.preempted_at)
            return
        request.scheduled_at = started_at
        request.first_token_at = self.now
        cached, prompt = request.cached_tokens, request.prompt_tokens
        counts.add("prompt_tokens", prompt)
        counts.add("prompt_tokens_by_source", prompt - cached, "local_compute")
        counts.add("prompt_tokens_by_source", cached, "local_cache_hit")
        counts.add("prompt_tokens_cached", cached)
        counts.add("prompt_tokens_cached_by_source", cached, "device")
        counts.add("prefix_cache_queries", prompt)
        counts.add("prefix_cache_hits", cached)
        counts.add("prefill_seconds", self.now - started_at)
        counts.observe("time_to_first_token_seconds", self.now - request.arrived_at)

    def _decode(self, steps: int, conditions: Conditions) -> None:
        """Execute steps without prefill."""
        step = self._step_seconds(conditions)
        running = len(self._scheduler.running)
        self._advance_clock(steps * step)
        tokens = self._generate(running, steps, step, conditions)
        # The tokens of a group are spread over its steps, and the remainder over the last ones.
        each, extra = divmod(tokens, steps)
        self.measurements.observe("iteration_tokens_total", each, steps - extra)
        self.measurements.observe("iteration_tokens_total", each + 1, extra)
        self._finish_requests()

    def _advance_clock(self, seconds: float) -> None:
        self.now += seconds
        self.busy_seconds += seconds

    def _generate(self, decoding: int, steps: int, step_seconds: float, conditions: Conditions) -> int:
        """Draw the tokens of the first `decoding` running requests; return how many there are."""
        if decoding <= 0:
            return 0
        drawn = sample_drafts(
            self._rng, decoding * steps, conditions.drafts, self.num_speculative_tokens or 0
        )
        counts = self.measurements
        if drawn.drafts:
            self._count_drafts(drawn)
        tokens = decoding * steps + drawn.accepted_tokens
        drawn.generation_tokens = tokens
        self.totals.add(drawn)
        counts.add("generation_tokens", tokens)
        outputs = decoding * steps
        counts.observe("inter_token_latency_seconds", step_seconds, outputs)
        counts.observe("time_per_output_token_seconds", step_seconds * outputs / tokens, outputs)
        counts.add("busy_slots", outputs)
        counts.add("decode_seconds", step_seconds * steps)
        # The accepted tokens are spread evenly, from a random request on.
        each, extra = divmod(drawn.accepted_tokens, decoding)
        offset = int(self._rng.random() * decoding)
        running = self._scheduler.running
        for index in range(decoding):
            running[index].generated += steps + each
        for index in range(offset, offset + extra):
            running[index % decoding].generated += 1
        return tokens

    def _count_drafts(self, drawn: Totals) -> None:
        counts = self.measurements
        counts.add("spec_decode_num_drafts", drawn.drafts)
        counts.add("spec_decode_num_draft_tokens", drawn.draft_tokens)
        counts.add("spec_decode_num_accepted_tokens", drawn.accepted_tokens)
        for position, accepted in enumerate(drawn.accepted_per_position):
            counts.add("spec_decode_num_accepted_tokens_per_pos", accepted, str(position))

    def _finish_requests(self) -> None:
        """Finish complete answers and free KV cache."""
        finished = self._scheduler.take_finished()
        for request in finished:
            self._finish(request)
        if finished:
            _set_llamacpp_values(self.measurements, self.totals)
            self._count_for_sglang()
        self.measurements.add("num_preemptions", self._scheduler.preempt(self.now))

    def _finish(self, request: SimulatedRequest) -> None:
        counts = self.measurements
        decode = self.now - request.first_token_at
        latency = self.now - request.arrived_at
        self.totals.finished_requests += 1
        counts.add("request_success", 1, request.finished_reason)
        observations = {
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": request.generated,
            "request_max_num_generation_tokens": request.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_time_per_output_token_seconds": decode / max(1, request.generated - 1),
            "e2e_request_latency_seconds": latency,
            "request_queue_time_seconds": request.scheduled_at - request.arrived_at,
            "request_inference_time_seconds": self.now - request.scheduled_at,
            "request_prefill_time_seconds": request.first_token_at - request.scheduled_at,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt_tokens - request.cached_tokens,
            "request_cached_tokens": request.cached_tokens,
            "request_cache_hit_ratio": request.cached_tokens / request.prompt_tokens,
            "http_request_duration_seconds": latency,
            "http_request_duration_highr_seconds": latency,
        }
        for name, value in observations.items():
            counts.observe(name, value)
        counts.set("longest", max(counts.get("longest"), request.kv_tokens))
        counts.add("http_requests", 1)
        # A request body has about 4 characters per prompt token, and its parameters.
        counts.add("http_request_size_bytes", 200 + 4 * request.prompt_tokens)

    def _set_load_gauges(self) -> None:
        """Set the gauges of load."""
        counts = self.measurements
        waiting = len(self._scheduler.waiting)
        counts.set("num_requests_running", len(self._scheduler.running))
        counts.set("num_requests_waiting", waiting)
        counts.set("num_requests_waiting_by_reason", waiting, "capacity")
        counts.set("kv_cache_usage_perc", self._scheduler.kv_usage)

    def _set_sglang_gauges(self) -> None:
        """Set SGLang's gauges, which are there from the first batch on."""
        counts, k = self.measurements, self.num_speculative_tokens or 0
        drafts, drafted = self.totals.drafts, self.totals.draft_tokens
        values = {
            "spec_num_steps": k,
            "spec_num_draft_tokens": k + 1 if k else 0,
            "spec_accept_length": 1 + self.totals.accepted_tokens / drafts if drafts else 0,
            "spec_accept_rate": self.totals.accepted_tokens / drafted if drafted else 0,
            "spec_cap_length": 0,
            "spec_block_accept_length": 0,
            "decode_tokens": self.totals.generation_tokens,
        }
        for name, value in values.items():
            counts.set(f"sglang_{name}", value)

    def _count_for_sglang(self) -> None:
        """Set SGLang's counters, which change only when a request is complete.

        The first tokens of running requests are left out: each request that is counted has one.
        """
        counts, totals = self.measurements, self.totals
        started = counts.histograms["time_to_first_token_seconds"].count
        counts.set("sglang_num_requests", totals.finished_requests)
        counts.set("sglang_generation_tokens", totals.generation_tokens - started + totals.finished_requests)
        counts.set("sglang_prompt_tokens", counts.get("prompt_tokens"))
        if totals.drafts:
            counts.set("sglang_spec_verify_calls", totals.drafts)


_V0_INTERVAL_SECONDS = 5.0


class _V0Sampler:
    """Samples the totals every 5 s, as vLLM's V0 engine did.

    Each sample added the totals since the start to the counters, so their rate is meaningless; the two gauges
    are means since the start.
    """

    def __init__(self, num_speculative_tokens: int) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        self._samples = 0

    def observe(self, now: float, totals: Totals, measurements: Measurements) -> None:
        """Take the samples that are due by now."""
        due = math.floor(now / _V0_INTERVAL_SECONDS)
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


def _set_lmdeploy_values(counts: Measurements, totals: Totals) -> None:
    """Set LMDeploy's own values: means and totals since the start."""
    if totals.draft_tokens:
        counts.set("spec_decode_mean_accept_rate", totals.accepted_tokens / totals.draft_tokens)
        counts.set("spec_decode_mean_accept_length", 1 + totals.accepted_tokens / totals.drafts)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            counts.set("spec_decode_per_position_accept_rate", accepted / totals.drafts, str(position))
    queries = counts.get("prefix_cache_queries")
    if queries:
        counts.set("prefix_cache_hit_rate", counts.get("prefix_cache_hits") / queries)
    counts.set("lmdeploy_request_success", counts.get("http_requests"), "ResponseType.FINISH")


def _set_llamacpp_values(counts: Measurements, totals: Totals) -> None:
    """Set llama.cpp's values, which change only when a request is complete."""
    computed = counts.get("prompt_tokens_by_source", "local_compute")
    generated = counts.get("generation_tokens")
    prefill, decode = counts.get("prefill_seconds"), counts.get("decode_seconds")
    steps = counts.histograms["iteration_tokens_total"].count
    values = {
        "prompt_tokens": computed,
        "prompt_tokens_cached": counts.get("prompt_tokens_cached"),
        "prompt_seconds": prefill,
        "tokens_predicted": generated,
        "tokens_predicted_seconds": decode,
        "n_decode": steps,
        "n_tokens_max": counts.get("longest"),
        "prompt_tokens_seconds": computed / prefill if prefill else 0.0,
        "predicted_tokens_seconds": generated / decode if decode else 0.0,
        "n_busy_slots_per_decode": counts.get("busy_slots") / steps if steps else 0.0,
        "spec_decode_num_drafts": totals.drafts,
        "spec_decode_num_draft_tokens": totals.draft_tokens,
        "spec_decode_num_accepted_tokens": totals.accepted_tokens,
    }
    for name, value in values.items():
        counts.set(f"llamacpp_{name}", value)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            counts.set("llamacpp_spec_decode_num_accepted_tokens_per_pos", accepted, str(position))
