"""The requests of a simulated engine."""

from dataclasses import dataclass
from random import Random

from .conditions import Load

_MAX_TOKENS_CHOICES = (128, 256, 512, 1024)


@dataclass(slots=True)
class Request:
    """One request on its way through an engine; times are seconds of simulated time.

    Attributes:
        arrived_at: When the request arrived.
        prompt_tokens: Length of the prompt.
        cached_tokens: Leading part of it that the prefix cache holds.
        target_tokens: Length at which the answer ends.
        max_tokens: The limit the client asked for.
        repeats: Whether the answer ends because it repeats itself.
        scheduled_at: When it first ran.
        first_token_at: When its first token came out.
        generated: Tokens of the answer so far.
        preemptions: How often it lost its place to others.
        preempted_at: When it last did.
    """

    arrived_at: float
    prompt_tokens: int
    cached_tokens: int
    target_tokens: int
    max_tokens: int
    repeats: bool
    scheduled_at: float = 0.0
    first_token_at: float = 0.0
    generated: int = 0
    preemptions: int = 0
    preempted_at: float = 0.0

    @property
    def finished_reason(self) -> str:
        """Why the answer ends, in vLLM's terms."""
        if self.repeats:
            return "repetition"
        return "length" if self.target_tokens >= self.max_tokens else "stop"

    @property
    def kv_tokens(self) -> int:
        """Tokens the request keeps in the KV cache while it runs."""
        return self.prompt_tokens + self.generated

    @property
    def prefill_tokens(self) -> int:
        """Tokens to compute before the next one can be generated."""
        if self.preemptions:
            return self.kv_tokens
        return self.prompt_tokens - self.cached_tokens


def draw_request(rng: Random, load: Load, arrived_at: float, max_model_len: int, block_size: int) -> Request:
    """Draw a request that is typical of the load.

    Lengths vary around their means (gamma distributed) and stay within the model's limit; the
    prefix cache holds whole blocks, and never all of a prompt.
    """
    prompt = max(1, round(rng.gammavariate(2.0, load.prompt_tokens / 2.0)))
    prompt = min(prompt, max_model_len // 2)
    limit = min(rng.choice(_MAX_TOKENS_CHOICES), max_model_len // 4)
    target = min(limit, max(2, round(rng.gammavariate(2.0, load.output_tokens / 2.0))))
    share = min(1.0, rng.random() * 2.0 * load.prefix_hit_ratio)
    cached = int(share * (prompt - 1)) // block_size * block_size
    return Request(
        arrived_at=arrived_at,
        prompt_tokens=prompt,
        cached_tokens=cached,
        target_tokens=target,
        max_tokens=limit,
        repeats=rng.random() < load.repetition_ratio,
    )
