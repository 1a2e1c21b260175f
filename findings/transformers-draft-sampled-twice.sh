#!/usr/bin/env bash
# Transformers applies the sampling temperature, top-p and the like twice to the draft model.
#
# Version:   transformers 5.24.0 with torch 2.13.0, generate(assistant_model=..., do_sample=True).
#            Its documents name no other temperature for the draft model than the target's.
# Expected:  A copy of the model as its own draft model has every draft accepted, at each
#            temperature.
# Behaviour: The target's prepared processors are given to the draft model, whose own generate
#            adds them again: temperature 0.5 drafts at 0.25, and top-p narrows what it has
#            narrowed. The output keeps its distribution, the acceptance falls. At temperature 1
#            without top-k and top-p there is nothing to apply, and all is accepted.
# Seen:      logits of the copy 1, 2 and 0.5 times as wide as the target's at temperature 1, 0.5
#            and 2; accepted: all, and below 8 of 10 drafts at the other two
# Matters:   An acceptance measured offline with transformers, to choose a draft model or the
#            number of tokens to draft, is not that of a server which applies them once: it has
#            a part that comes from the temperature alone, and that a perfect draft model has too.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages torch==2.13.0 transformers==5.24.0
cat >"$work/draft.py" <<'END'
"""Prints the width of a draft's logits beside its target's, and whether drafts are accepted."""

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.candidate_generator import AssistedCandidateGenerator

torch.set_num_threads(1)
torch.manual_seed(0)
target = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=None,
        pad_token_id=0,
        # Wide enough that temperature matters.
        initializer_range=0.5,
    )
).eval()
draft = copy.deepcopy(target)
draft.generation_config.num_assistant_tokens = 5
draft.generation_config.num_assistant_tokens_schedule = "constant"
draft.generation_config.assistant_confidence_threshold = 0.0

rounds = []
get_candidates = AssistedCandidateGenerator.get_candidates
update_candidate_strategy = AssistedCandidateGenerator.update_candidate_strategy


def drafted(self, input_ids, **options):
    candidates, logits = get_candidates(self, input_ids, **options)
    if logits is not None:
        rounds.append([logits])
    return candidates, logits


def verified(self, input_ids, scores, num_matches):
    if len(rounds[-1]) == 1:
        rounds[-1] += [scores, int(num_matches)]
    update_candidate_strategy(self, input_ids, scores, num_matches)


AssistedCandidateGenerator.get_candidates = drafted
AssistedCandidateGenerator.update_candidate_strategy = verified


def width(logits):
    # Of the first position, which both saw with the same context.
    return logits[0, 0].max() - logits[0, 0].min()


def speculate(temperature):
    rounds.clear()
    torch.manual_seed(1)
    target.generate(
        torch.tensor([[1, 5, 6, 7]]),
        assistant_model=draft,
        do_sample=True,
        max_new_tokens=200,
        temperature=temperature,
        top_k=0,
    )
    logits, scores, _ = rounds[0]
    tokens = sum(logits.shape[1] for logits, _, _ in rounds)
    accepted = sum(matches for _, _, matches in rounds) / tokens
    # Seeds keep their numbers in one version of torch only.
    share = "all" if accepted == 1 else "below 0.8" if accepted < 0.8 else "below 1"
    return f"width {width(logits) / width(scores):.2f}, accepted {share}"


for temperature in (1.0, 0.5, 2.0):
    print(f"temperature {temperature}: {speculate(temperature)}")
END
seen "$("$work/venv/bin/python" -W ignore "$work/draft.py" 2>"$work/warnings")" <<'END'
temperature 1.0: width 1.00, accepted all
temperature 0.5: width 2.00, accepted below 0.8
temperature 2.0: width 0.50, accepted below 0.8
END
