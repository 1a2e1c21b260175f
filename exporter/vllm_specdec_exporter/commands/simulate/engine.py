"""One simulated engine: its requests and their scheduler, its steps, and the values
that servers publish.
"""

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from random import Random

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


@dataclass(slots=True)
class SimulatedRequest:
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
    prompt = max(1, round(rng.gammavariate(2.0, traffic.prompt_tokens / 2.0)))
    prompt = min(prompt, config.max_model_len // 2)
    limit = min(rng.choice(_MAX_TOKENS_CHOICES), config.max_model_len // 4)
    target = min(
        limit, max(2, round(rng.gammavariate(2.0, traffic.output_tokens / 2.0)))
    )
    share = min(1.0, rng.random() * 2.0 * traffic.prefix_hit_ratio)
    cached = int(share * (prompt - 1)) // config.block_size * config.block_size
    repeats = rng.random() < traffic.repetition_ratio
    return SimulatedRequest(
        arrived_at=arrived_at,
        prompt_tokens=prompt,
        cached_tokens=cached,
        target_tokens=target,
        max_tokens=limit,
        repeats=repeats,
    )


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
        block = self._config.block_size
        return sum(-(-request.kv_tokens // block) * block for request in self.running)

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
        if not self.waiting:
            return admitted
        room = self._config.kv_cache_tokens * (1.0 - _WATERMARK) - self.kv_tokens
        budget = self._config.max_num_batched_tokens
        while (
            self.waiting
            and budget > 0
            and len(self.running) < self._config.max_num_seqs
        ):
            request = self.waiting[0]
            needed = request.kv_tokens + self._config.block_size
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
            block = self._config.block_size
            excess -= -(-request.kv_tokens // block) * block
            request.preemptions += 1
            request.preempted_at = now
            self.waiting.appendleft(request)
            preempted += 1
        return preempted

    def take_finished(self) -> list[SimulatedRequest]:
        """Remove the requests whose answer is complete; return them."""
        finished = [r for r in self.running if r.generated >= r.target_tokens]
        if finished:
            self.running = [r for r in self.running if r.generated < r.target_tokens]
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
        # K, or None without speculation
        self.num_speculative_tokens = num_speculative_tokens
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
        """Simulate seconds.

        Only whole steps are executed; the rest counts for the next call.
        """
        self._until += seconds
        while self._until - self.now > _RESOLUTION:
            if not self._advance_once(conditions):
                break
        counts = self.measurements
        scheduler = self._scheduler
        counts.set("num_requests_running", len(scheduler.running))
        counts.set("num_requests_waiting", len(scheduler.waiting))
        counts.set("num_requests_waiting_by_reason", len(scheduler.waiting), "capacity")
        counts.set(
            "kv_cache_usage_perc",
            min(1.0, scheduler.kv_tokens / self.config.kv_cache_tokens),
        )

    def _advance_once(self, conditions: Conditions) -> bool:
        """Execute one group of steps, or skip idle time; return False if the time is
        too short.
        """
        step = self._step_seconds(conditions)
        scheduler = self._scheduler
        if not scheduler.running and not scheduler.waiting:
            available = self._until - self.now
            if conditions.traffic.clients <= 0:
                skipped = available
            else:
                skipped = min(available, step)
            self.now += skipped
        elif step > self._until - self.now + _RESOLUTION:
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
            self._decode(steps, conditions)
        return True

    def _step_seconds(self, conditions: Conditions, prefill_tokens: int = 0) -> float:
        drafted = conditions.drafts.mean_draft_tokens(self.num_speculative_tokens or 0)
        traffic = conditions.traffic
        context = traffic.prompt_tokens + traffic.output_tokens / 2
        decoding = self._decoding_seconds(
            len(self._scheduler.running), drafted, context
        )
        return decoding + self.config.prefill_token_seconds * prefill_tokens

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
        self.measurements.observe(
            "iteration_tokens_total", computed + tokens + len(admitted)
        )
        self._finish_requests()

    def _finish_prefill(self, request: SimulatedRequest, started_at: float) -> None:
        counts = self.measurements
        request.generated += 1
        self.totals.generation_tokens += 1
        counts.add("generation_tokens", 1)
        if request.preemptions:
            # A preempted request is recomputed; its client observes one long
            # inter-token latency.
            counts.observe(
                "inter_token_latency_seconds", self.now - request.preempted_at
            )
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

    def _decode(self, steps: int, conditions: Conditions) -> None:
        step = self._step_seconds(conditions)
        running = len(self._scheduler.running)
        self._advance_clock(steps * step)
        tokens = self._generate(running, steps, step, conditions)
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
        drawn = sample_drafts(
            self._rng,
            decoding * steps,
            conditions.drafts,
            self.num_speculative_tokens or 0,
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
            counts.add(
                "spec_decode_num_accepted_tokens_per_pos", accepted, str(position)
            )

    def _finish_requests(self) -> None:
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
            "request_time_per_output_token_seconds": decode
            / max(1, request.generated - 1),
            "e2e_request_latency_seconds": latency,
            "request_queue_time_seconds": request.scheduled_at - request.arrived_at,
            "request_inference_time_seconds": self.now - request.scheduled_at,
            "request_prefill_time_seconds": request.first_token_at
            - request.scheduled_at,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt_tokens
            - request.cached_tokens,
            "http_request_duration_seconds": latency,
            "http_request_duration_highr_seconds": latency,
        }
        for name, value in observations.items():
            counts.observe(name, value)
        counts.add("http_requests", 1)
        # A request body has about 4 characters per prompt token, and its parameters.
        counts.add("http_request_size_bytes", 200 + 4 * request.prompt_tokens)
