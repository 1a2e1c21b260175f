"""A plugin of vLLM's: on a CPU, requests with draft tokens are sampled at the
temperature they ask for.

vLLM's stand-in for `expand_kernel` on a CPU fills a copy of the tensor it was given, so
that the sampler goes on with memory that nobody has written: temperature, top-k and
top-p of draft tokens are what lay there before (vllm-project/vllm#55005, open; 0.32.0
has it). Acceptance is then another in every life of a server, from 0 to as high as
without a temperature, and two answers to one seed differ. Only sampled requests with
draft tokens are concerned, and only on a CPU.

vLLM loads it in each of its processes, by the entry point beside it; `server.py` puts
this directory on the path. It also lets drafted positions take a time, for tests of
times.
"""

import os
import time
from typing import Any

import torch

#: Variable with the seconds that a drafted position takes, for tests of times.
POSITION_SECONDS = "SPECDEC_POSITION_SECONDS"


def expand_batch_to_tokens(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: float = 0,
    replace_to: float = 0,
) -> torch.Tensor:
    """Return the value of each request once for each of its tokens, with one value
    replaced.
    """
    tokens = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    replaced = x.masked_fill(x == replace_from, replace_to)
    return replaced.repeat_interleave(tokens, output_size=num_tokens)


def register() -> None:
    """Put it in the place of vLLM's own."""
    from vllm.v1.sample import rejection_sampler

    rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens
    if POSITION_SECONDS in os.environ:
        slow_drafts_down(float(os.environ[POSITION_SECONDS]))


def slow_drafts_down(seconds: float) -> None:
    """Let each drafted position take so long, which a busy processor changes little."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    propose = SpecDecodeBaseProposer.propose

    def slowly(self: Any, num_speculative_tokens: int, *args: Any, **rest: Any) -> Any:
        time.sleep(seconds * num_speculative_tokens)
        return propose(self, num_speculative_tokens, *args, **rest)

    SpecDecodeBaseProposer.propose = slowly
