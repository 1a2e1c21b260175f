"""One simulated engine: its requests and their scheduler, its steps, and the values
that servers publish.
"""

import math
from collections import deque
from functools import lru_cache
from random import Random

from msgspec import Struct

from .families import Measurements
from .speculation import (
    Conditions,
    EngineConfig,
    Totals,
    Traffic,
    binomial,
    sample_drafts,
)

_MAX_TOKENS_CHOICES = (128, 256, 512, 1024)


class SimulatedRequest(Struct):
    """One request in an engine. Times are simulated seconds."""

    arrived_at: float
    prompt_tokens: int
    cached_tokens: int  # tokens of the prompt in the prefix cache
    target_tokens: int  # length at which the answer ends
    max_tokens: int  # the client's limit
    repeats: bool  # whether the answer ends by repetition detection
    scheduled_at: float = 0.0  # start of its first step
    first_token_at: float = 0.0
    generated: int = 0  # tokens of the answer so far
    preemptions: int = 0
    preempted_at: float = 0.0  # time of the last preemption

    @property
    def finished_reason(self) -> str:
        """The `finished_reason` of vLLM."""
        if self.repeats:
            return "repetition"
        if self.target_tokens >= self.max_tokens:
            return "length"
        return "stop"

    @property
    def kv_tokens(self) -> int:
        """Tokens of the request in the KV cache while it runs."""
        return self.prompt_tokens + self.generated

    @property
    def prefill_tokens(self) -> int:
        """Tokens to compute in its prefill."""
        if self.preemptions:
            return self.kv_tokens
        return self.prompt_tokens - self.cached_tokens


def draw_request(
    rng: Random, traffic: Traffic, arrived_at: float, config: EngineConfig
) -> SimulatedRequest:
    """Draw a request.

    Lengths are gamma distributed around their means, within the model's limit; the
    prefix cache contains whole blocks, and never all of a prompt.
    """
    prompt = max(1, _draw_length(rng, traffic.prompt_tokens))
    # Half and a quarter: prompt and answer always fit into the model together.
    prompt = min(prompt, config.max_model_len // 2)
    limit = min(rng.choice(_MAX_TOKENS_CHOICES), config.max_model_len // 4)
    target = min(limit, max(2, _draw_length(rng, traffic.output_tokens)))
    hit_ratio = min(1.0, rng.random() * 2.0 * traffic.prefix_hit_ratio)
    cached_blocks = int(hit_ratio * (prompt - 1)) // config.block_size
    return SimulatedRequest(
        arrived_at=arrived_at,
        prompt_tokens=prompt,
        cached_tokens=cached_blocks * config.block_size,
        target_tokens=target,
        max_tokens=limit,
        repeats=rng.random() < traffic.repetition_ratio,
    )


def _draw_length(rng: Random, mean: float) -> int:
    return round(rng.gammavariate(2.0, mean / 2.0))


# Share of the KV cache that vLLM keeps free when it admits requests.
_WATERMARK = 0.01


class Scheduler:
    """The queues of one engine."""

    def __init__(self, config: EngineConfig, rng: Random) -> None:
        self.running: list[SimulatedRequest] = []
        self.waiting: deque[SimulatedRequest] = deque()
        self._config = config
        self._rng = rng

    @property
    def kv_tokens(self) -> int:
        """Tokens in the KV cache, in whole blocks."""
        return sum(map(self._kv_tokens_of, self.running))

    def _kv_tokens_of(self, request: SimulatedRequest) -> int:
        block = self._config.block_size
        return -(-request.kv_tokens // block) * block  # rounded up

    def arrive(
        self, traffic: Traffic, now: float, seconds: float, spread: float
    ) -> None:
        """Add requests of clients whose pause ended in the last `seconds`, as of the
        last `spread` ones.
        """
        thinking = traffic.clients - len(self.running) - len(self.waiting)
        if thinking <= 0 or seconds <= 0.0:
            return
        chance = 1.0
        if traffic.think_seconds > 0.0:
            chance = -math.expm1(-seconds / traffic.think_seconds)
        for _ in range(binomial(self._rng, thinking, chance)):
            arrived_at = now - self._rng.random() * spread
            self.waiting.append(
                draw_request(self._rng, traffic, arrived_at, self._config)
            )

    def admit(self) -> list[SimulatedRequest]:
        """Move waiting requests into the batch while they fit; return them."""
        admitted: list[SimulatedRequest] = []
        if not self.waiting:  # as in most steps: saves the sum over the batch
            return admitted
        config = self._config
        room = config.kv_cache_tokens * (1.0 - _WATERMARK) - self.kv_tokens
        budget = config.max_num_batched_tokens
        while self.waiting and budget > 0 and len(self.running) < config.max_num_seqs:
            request = self.waiting[0]
            needed = request.kv_tokens + config.block_size
            # A request larger than the whole cache must not block the queue forever.
            if needed > room and self.running:
                break
            room -= needed
            budget -= request.prefill_tokens
            self.waiting.popleft()
            self.running.append(request)
            admitted.append(request)
        return admitted

    def preempt(self, now: float) -> int:
        """Preempt the latest requests until the others fit into the KV cache; return
        how many.
        """
        preempted = 0
        excess = self.kv_tokens - self._config.kv_cache_tokens
        while excess > 0 and len(self.running) > 1:
            request = self.running.pop()
            excess -= self._kv_tokens_of(request)
            request.preemptions += 1
            request.preempted_at = now
            self.waiting.appendleft(request)
            preempted += 1
        return preempted

    def take_finished(self) -> list[SimulatedRequest]:
        """Remove the requests whose answer is complete; return them."""
        finished: list[SimulatedRequest] = []
        unfinished: list[SimulatedRequest] = []
        for request in self.running:
            complete = request.generated >= request.target_tokens
            (finished if complete else unfinished).append(request)
        self.running = unfinished
        return finished


# Steps are drawn in groups of about this many seconds: fast, and finer than any scrape
# interval.
_GROUP_SECONDS = 0.1
_RESOLUTION = 1e-9


class Engine:
    """The state of one engine since its server started."""

    def __init__(
        self, config: EngineConfig, num_speculative_tokens: int | None, rng: Random
    ):
        #: K, or None without speculation.
        self.num_speculative_tokens = num_speculative_tokens
        self.measurements = Measurements(config.max_model_len)  # the published values
        self.totals = Totals.empty(num_speculative_tokens or 0)
        self.now = 0.0  # simulated seconds since the server started
        self.busy_seconds = 0.0  # simulated seconds spent in steps
        self.config = config
        self._rng = rng
        self._scheduler = Scheduler(config, rng)
        # The roofline is slow to compute, and most steps have the same few values.
        self._decoding_seconds = lru_cache(maxsize=1024)(config.decoding_seconds)
        self._until = 0.0
        self._thinking_since = 0.0
        self.measurements.set("engine_sleep_state", 1, "awake")

    def advance(self, seconds: float, conditions: Conditions) -> None:
        """Simulate seconds.

        Only whole steps are executed; the rest counts for the next call.
        """
        self._until += seconds
        while self._until - self.now > _RESOLUTION:
            if not self._advance_once(conditions):
                break
        scheduler = self._scheduler
        waiting = len(scheduler.waiting)
        kv_usage = min(1.0, scheduler.kv_tokens / self.config.kv_cache_tokens)
        gauges = self.measurements
        gauges.set("num_requests_running", len(scheduler.running))
        gauges.set("num_requests_waiting", waiting)
        gauges.set("num_requests_waiting_by_reason", waiting, "capacity")
        gauges.set("kv_cache_usage_perc", kv_usage)

    def _advance_once(self, conditions: Conditions) -> bool:
        """Execute one group of steps, or skip idle time; return False if the time is
        too short.
        """
        step = self._step_seconds(conditions)
        scheduler = self._scheduler
        available = self._until - self.now
        if not scheduler.running and not scheduler.waiting:
            if conditions.traffic.clients > 0:
                available = min(available, step)
            self.now += available
        elif step > available + _RESOLUTION:
            return False
        elapsed = self.now - self._thinking_since
        self._thinking_since = self.now
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
            self._decode(steps, step, conditions)
        return True

    def _step_seconds(self, conditions: Conditions, prefill_tokens: int = 0) -> float:
        drafted = conditions.drafts.mean_draft_tokens(self.num_speculative_tokens or 0)
        traffic = conditions.traffic
        context = traffic.prompt_tokens + traffic.output_tokens / 2
        running = len(self._scheduler.running)
        of_prompt_token = self.config.prefill_token_seconds
        # A drafter reads prompts as well, also where a step drafts nothing.
        if self.num_speculative_tokens:
            of_prompt_token += self.config.draft_prefill_token_seconds
        decoding = self._decoding_seconds(running, drafted, context)
        return decoding + of_prompt_token * prefill_tokens

    def _prefill(
        self, admitted: list[SimulatedRequest], conditions: Conditions
    ) -> None:
        """Execute one step that prefills admitted requests and decodes the others."""
        computed = sum(request.prefill_tokens for request in admitted)
        seconds = self._step_seconds(conditions, computed)
        decoding = len(self._scheduler.running) - len(admitted)
        started_at = self.now
        self._advance_clock(seconds)
        tokens = self._generate(decoding, 1, seconds, conditions)
        for request in admitted:
            self._finish_prefill(request, started_at)
        processed = computed + tokens + len(admitted)
        self.measurements.observe("iteration_tokens_total", processed)
        self._finish_requests()

    def _finish_prefill(self, request: SimulatedRequest, started_at: float) -> None:
        counts = self.measurements
        request.generated += 1
        self.totals.generation_tokens += 1
        counts.add("generation_tokens", 1)
        if request.preemptions:
            # A preempted request is recomputed; its client observes one long
            # inter-token latency.
            gap = self.now - request.preempted_at
            counts.observe("inter_token_latency_seconds", gap)
            return
        request.scheduled_at = started_at
        request.first_token_at = self.now
        cached = request.cached_tokens
        prompt = request.prompt_tokens
        counts.add("prompt_tokens", prompt)
        counts.add("prompt_tokens_by_source", prompt - cached, "local_compute")
        counts.add("prompt_tokens_by_source", cached, "local_cache_hit")
        counts.add("prompt_tokens_cached", cached)
        counts.add("prompt_tokens_cached_by_source", cached, "device")
        counts.add("prefix_cache_queries", prompt)
        counts.add("prefix_cache_hits", cached)
        counts.observe("time_to_first_token_seconds", self.now - request.arrived_at)

    def _decode(self, steps: int, step_seconds: float, conditions: Conditions) -> None:
        """Execute a group of steps that decode all running requests."""
        running = len(self._scheduler.running)
        self._advance_clock(steps * step_seconds)
        tokens = self._generate(running, steps, step_seconds, conditions)
        # The tokens of a group are spread over its steps, and the remainder over the
        # last ones.
        each, extra = divmod(tokens, steps)
        self.measurements.observe("iteration_tokens_total", each, steps - extra)
        self.measurements.observe("iteration_tokens_total", each + 1, extra)
        self._finish_requests()

    def _advance_clock(self, seconds: float) -> None:
        self.now += seconds
        self.busy_seconds += seconds

    def _generate(
        self, decoding: int, steps: int, step_seconds: float, conditions: Conditions
    ) -> int:
        """Draw the tokens of the first `decoding` running requests; return how many
        there are.
        """
        if decoding <= 0:
            return 0
        outputs = decoding * steps
        k = self.num_speculative_tokens or 0
        drawn = sample_drafts(self._rng, outputs, conditions.drafts, k)
        if drawn.drafts:
            self._count_drafts(drawn)
        tokens = outputs + drawn.accepted_tokens
        drawn.generation_tokens = tokens
        self.totals.add(drawn)
        self.measurements.add("generation_tokens", tokens)
        self.measurements.observe("inter_token_latency_seconds", step_seconds, outputs)
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
            name = "spec_decode_num_accepted_tokens_per_pos"
            counts.add(name, accepted, str(position))

    def _finish_requests(self) -> None:
        for request in self._scheduler.take_finished():
            self._finish(request)
        self.measurements.add("num_preemptions", self._scheduler.preempt(self.now))

    def _finish(self, request: SimulatedRequest) -> None:
        decode = self.now - request.first_token_at
        latency = self.now - request.arrived_at
        prefill = request.first_token_at - request.scheduled_at
        computed = request.prompt_tokens - request.cached_tokens
        per_output_token = decode / max(1, request.generated - 1)
        observations = {
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": request.generated,
            "request_max_num_generation_tokens": request.generated,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_time_per_output_token_seconds": per_output_token,
            "e2e_request_latency_seconds": latency,
            "request_queue_time_seconds": request.scheduled_at - request.arrived_at,
            "request_inference_time_seconds": self.now - request.scheduled_at,
            "request_prefill_time_seconds": prefill,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": computed,
            "http_request_duration_seconds": latency,
            "http_request_duration_highr_seconds": latency,
        }
        counts = self.measurements
        for name, value in observations.items():
            counts.observe(name, value)
        counts.add("request_success", 1, request.finished_reason)
        counts.add("http_requests", 1)
        # A request body has about 4 characters per prompt token, and its parameters.
        counts.add("http_request_size_bytes", 200 + 4 * request.prompt_tokens)
