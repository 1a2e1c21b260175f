"""Which requests wait and which run: arrivals, admission and preemption."""

import math
from collections import deque
from random import Random

from .conditions import EngineConfig, Load
from .requests import Request, draw_request
from .sampling import binomial

# vLLM keeps this share of the KV cache free when it admits requests.
_WATERMARK = 0.01


class Scheduler:
    """The queues of one engine."""

    def __init__(self, config: EngineConfig, rng: Random) -> None:
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
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

    def arrive(self, load: Load, now: float, seconds: float, spread: float) -> None:
        """Let thinking clients send their next request.

        Args:
            load: The traffic.
            now: Present time.
            seconds: How long the clients have been thinking since the last call.
            spread: The requests came at a random moment up to this many seconds ago, that is
                within the step that was then running.
        """
        thinking = load.clients - len(self.running) - len(self.waiting)
        if thinking <= 0 or seconds <= 0.0:
            return
        chance = 1.0
        if load.think_seconds > 0.0:
            chance = -math.expm1(-seconds / load.think_seconds)
        for _ in range(binomial(self._rng, thinking, chance)):
            arrived_at = now - self._rng.random() * spread
            self.waiting.append(
                draw_request(
                    self._rng,
                    load,
                    arrived_at,
                    self._config.max_model_len,
                    self._config.block_size,
                )
            )

    def admit(self) -> list[Request]:
        """Move waiting requests into the batch as far as there is room; return them."""
        admitted: list[Request] = []
        if not self.waiting:
            return admitted
        room = self._config.kv_cache_tokens * (1.0 - _WATERMARK) - self.kv_tokens
        budget = self._config.max_num_batched_tokens
        while self.waiting and budget > 0 and len(self.running) < self._config.max_num_seqs:
            request = self.waiting[0]
            needed = request.kv_tokens + self._config.block_size
            # A request larger than the whole cache must not block the queue for ever.
            if needed > room and self.running:
                break
            room -= needed
            budget -= request.prefill_tokens
            self.waiting.popleft()
            self.running.append(request)
            admitted.append(request)
        return admitted

    def preempt(self, now: float) -> int:
        """Send the latest requests back to the queue until the KV cache holds the rest."""
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

    def take_finished(self) -> list[Request]:
        """Remove the requests whose answer is complete; return them."""
        finished = [r for r in self.running if r.generated >= r.target_tokens]
        if finished:
            self.running = [r for r in self.running if r.generated < r.target_tokens]
        return finished
