"""One simulated engine: the steps of its batch, and the values that servers publish about them."""

import math
from functools import lru_cache
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
        self._decoding_seconds = lru_cache(maxsize=1024)(config.decoding_seconds)
        self._until = 0.0
        self._thinking_since = 0.0
        self.measurements.set("engine_sleep_state", 1, "awake")

    def advance(self, seconds: float, conditions: Conditions) -> None:
        """Simulate seconds. Only whole steps are executed; the rest counts for the next call."""
        self._until += seconds
        while self._until - self.now > _RESOLUTION:
            if not self._advance_once(conditions):
                break
        counts, scheduler = self.measurements, self._scheduler
        counts.set("num_requests_running", len(scheduler.running))
        counts.set("num_requests_waiting", len(scheduler.waiting))
        counts.set("num_requests_waiting_by_reason", len(scheduler.waiting), "capacity")
        counts.set("kv_cache_usage_perc", scheduler.kv_usage)

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
        drafted = conditions.drafts.mean_draft_tokens(self.num_speculative_tokens or 0)
        traffic = conditions.traffic
        context = traffic.prompt_tokens + traffic.output_tokens / 2
        decoding = self._decoding_seconds(len(self._scheduler.running), drafted, context)
        return decoding + self.config.prefill_token_seconds * prefill_tokens

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
        for request in self._scheduler.take_finished():
            self._finish(request)
        self.measurements.add("num_preemptions", self._scheduler.preempt(self.now))

    def _finish(self, request: SimulatedRequest) -> None:
        counts = self.measurements
        decode = self.now - request.first_token_at
        latency = self.now - request.arrived_at
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
            "http_request_duration_seconds": latency,
            "http_request_duration_highr_seconds": latency,
        }
        for name, value in observations.items():
            counts.observe(name, value)
        counts.add("http_requests", 1)
        # A request body has about 4 characters per prompt token, and its parameters.
        counts.add("http_request_size_bytes", 200 + 4 * request.prompt_tokens)
