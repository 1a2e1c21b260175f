#!/usr/bin/env bash
# SGLang's benchmark changes what an inter-token latency is when a server says that it speculates.
#
# Version:   sglang 0.5.23, sglang.benchmark.serving.
# Expected:  One recorded stream has one mean inter-token latency.
# Behaviour: If backend is sglang-oai and /server_info had an avg_spec_accept_length, the time
#            between two chunks is divided among the tokens of the chunk; otherwise, and for
#            every other backend, a chunk is one latency. The printed name is the same.
# Seen:      the same 40 chunks of 3 tokens, 30 ms apart: vllm 30.0 ms, sglang-oai without
#            accept length 30.0 ms, with it 10.0 ms; TPOT is the same in all
# Matters:   "Mean ITL" of vLLM and SGLang, taken with one tool, differ by the mean chunk for
#            equal streams. The accept length is of the server's whole life and of its first
#            data-parallel rank: a single earlier draft switches the definition.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps sglang==0.5.23
python_packages aiohttp==3.14.1 msgspec==0.22.0 numpy==2.3.5 orjson==3.13.0 requests==2.34.2 tqdm==4.70.0
cat >"$work/latencies.py" <<'END'
"""Prints the mean inter-token latency of one stream for three ways to ask."""

import sys
import types
from importlib.metadata import distribution
from unittest.mock import MagicMock

# Data sets, tokenizers and the server need torch; the statistics do not.
for name in ("sglang", "sglang.benchmark"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("sglang").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("benchmark.datasets", "benchmark.datasets.mooncake", "benchmark.utils"):
    sys.modules[f"sglang.{name}"] = MagicMock()
for name in ("srt", "srt.disaggregation", "srt.disaggregation.utils", "srt.utils", "srt.utils.network"):
    sys.modules[f"sglang.{name}"] = MagicMock()
sys.modules["transformers"] = MagicMock()

from sglang.benchmark.serving import RequestFuncOutput, calculate_metrics

CHUNKS = 40
SECONDS = 0.03
TEXT = "a b c "


class Words:
    """A tokenizer: one token a word."""

    def encode(self, text, **_):
        return text.split()


def latency(backend, accept_length):
    output = RequestFuncOutput(
        success=True,
        generated_text=TEXT * (CHUNKS + 1),
        latency=0.1 + CHUNKS * SECONDS,
        ttft=0.1,
        itl=[SECONDS] * CHUNKS,
        text_chunks=[TEXT] * CHUNKS,
        prompt_len=10,
        output_len=3 * (CHUNKS + 1),
    )
    metrics, _ = calculate_metrics(
        input_requests=None,
        outputs=[output],
        dur_s=2.0,
        tokenizer=Words(),
        backend=backend,
        accept_length=accept_length,
    )
    return f"{backend} {accept_length}: ITL {metrics.mean_itl_ms:.1f} ms, TPOT {metrics.mean_tpot_ms:.1f} ms"


print(latency("vllm", None))
print(latency("sglang-oai", None))
print(latency("sglang-oai", 1.01))
END
seen "$("$work/venv/bin/python" -W ignore "$work/latencies.py")" <<'END'
vllm None: ITL 30.0 ms, TPOT 9.8 ms
sglang-oai None: ITL 30.0 ms, TPOT 9.8 ms
sglang-oai 1.01: ITL 10.0 ms, TPOT 9.8 ms
END
