"""What a simulated server is made of, and what it is put through."""

from dataclasses import dataclass, field

from .speculation import DraftModel


@dataclass(frozen=True)
class StepCost:
    """How long a step of the engine takes.

    A step reads all weights once, whatever the batch; every token it computes, drafted ones
    included, adds a little; and the drafter proposes its tokens one after another. So the time
    per output token falls as more draft tokens are accepted, and at large batches rejected ones
    cost more than they can give.

    Attributes:
        base_seconds: Time for reading the weights.
        token_seconds: Time per token that is computed in the batch, verified drafts included.
        draft_position_seconds: Time per position that is drafted.
        prefill_token_seconds: Time per prompt token that is not in the prefix cache.
    """

    base_seconds: float = 0.018
    token_seconds: float = 4e-5
    draft_position_seconds: float = 0.0008
    prefill_token_seconds: float = 4e-5

    def step_seconds(
        self, running: int, mean_draft_tokens: float, positions: float, prefill_tokens: int = 0
    ) -> float:
        """Return the duration of one step.

        Args:
            running: Requests in the batch.
            mean_draft_tokens: Mean number of draft tokens per request.
            positions: Positions the drafter proposes one after another.
            prefill_tokens: Prompt tokens computed in the same step.
        """
        return (
            self.base_seconds
            + self.token_seconds * running * (1.0 + mean_draft_tokens)
            + self.draft_position_seconds * positions
            + self.prefill_token_seconds * prefill_tokens
        )


@dataclass(frozen=True)
class EngineConfig:
    """The fixed properties of an engine.

    Attributes:
        max_num_seqs: Most requests that run at once.
        max_num_batched_tokens: Prompt tokens after which a step takes no further prompt.
        kv_cache_tokens: Tokens the KV cache can hold.
        block_size: Tokens per block of the KV cache.
        max_model_len: Longest sequence of the model in tokens; bucket bounds depend on it.
        step_cost: How long a step takes.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    kv_cache_tokens: int = 65_536
    block_size: int = 16
    max_model_len: int = 8192
    step_cost: StepCost = field(default_factory=StepCost)


@dataclass(frozen=True)
class Load:
    """The traffic of one engine: clients that send a request, read the answer and think.

    Attributes:
        clients: Clients of this engine, so the most requests it has at a time.
        think_seconds: Mean time between an answer and the client's next request.
        prompt_tokens: Mean prompt length.
        output_tokens: Mean answer length.
        prefix_hit_ratio: Mean share of a prompt found in the prefix cache.
        repetition_ratio: Share of the answers that end because they repeat themselves.
    """

    clients: int = 24
    think_seconds: float = 0.5
    prompt_tokens: float = 600.0
    output_tokens: float = 200.0
    prefix_hit_ratio: float = 0.35
    repetition_ratio: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """Everything an engine is put through at a moment: its drafts and its traffic."""

    drafts: DraftModel
    load: Load
