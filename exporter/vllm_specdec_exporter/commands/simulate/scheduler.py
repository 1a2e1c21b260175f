"""The requests of a simulated engine, and its scheduler."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from random import Random

from .speculation import EngineConfig, Traffic, binomial

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
        return "length" if self.target_tokens >= self.max_tokens else "stop"

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


def draw_request(rng: Random, traffic: Traffic, arrived_at: float, config: EngineConfig) -> SimulatedRequest:
    """Draw a request.

    Lengths are gamma distributed around their means, within the model's limit; the prefix cache contains
    whole blocks, and never all of a prompt.
    """
    prompt = max(1, round(rng.gammavariate(2.0, traffic.prompt_tokens / 2.0)))
    prompt = min(prompt, config.max_model_len // 2)
    limit = min(rng.choice(_MAX_TOKENS_CHOICES), config.max_model_len // 4)
    target = min(limit, max(2, round(rng.gammavariate(2.0, traffic.output_tokens / 2.0))))
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

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, from 0 to 1."""
        return min(1.0, self.kv_tokens / self._config.kv_cache_tokens)

    def arrive(self, traffic: Traffic, now: float, seconds: float, spread: float) -> None:
        """Add requests of clients whose pause ended in the last `seconds`, as of the last `spread` ones."""
        thinking = traffic.clients - len(self.running) - len(self.waiting)
        if thinking <= 0 or seconds <= 0.0:
            return
        chance = 1.0
        if traffic.think_seconds > 0.0:
            chance = -math.expm1(-seconds / traffic.think_seconds)
        for _ in range(binomial(self._rng, thinking, chance)):
            arrived_at = now - self._rng.random() * spread
            self.waiting.append(draw_request(self._rng, traffic, arrived_at, self._config))

    def admit(self) -> list[SimulatedRequest]:
        """Move waiting requests into the batch while they fit; return them."""
        admitted: list[SimulatedRequest] = []
        if not self.waiting:
            return admitted
        room = self._config.kv_cache_tokens * (1.0 - _WATERMARK) - self.kv_tokens
        budget = self._config.max_num_batched_tokens
        while self.waiting and budget > 0 and len(self.running) < self._config.max_num_seqs:
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
        """Preempt the latest requests until the others fit into the KV cache; return how many."""
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
