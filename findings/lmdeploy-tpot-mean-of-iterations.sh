#!/usr/bin/env bash
# LMDeploy's mean time per output token is that of its iterations, not that of its tokens.
#
# Version:   lmdeploy 0.18.0, lmdeploy:time_per_output_token_seconds ("time per output token").
# Expected:  The histogram's sum over its count is the time of decoding over the tokens decoded.
# Behaviour: Each iteration is one observation, its time divided by its tokens. An iteration of
#            four tokens counts as much as one of a single token, so the mean is above the real one
#            wherever the number of accepted tokens varies, and is right where it does not.
# Seen:      iterations of 20 ms: 20 ms a token without speculation; with 4, 1, 4, 1 ... tokens
#            12.5 ms, where its own decode time over its own generated tokens is 8 ms; with 4
#            tokens each time 5 ms and 5 ms
# Matters:   By this mean speculation makes a server 1.6 times as fast, and it makes it 2.5 times
#            as fast. Of two draft models with the same acceptance the steadier one looks better,
#            and a server looks slower than one of another kind that counts tokens.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps lmdeploy==0.18.0
python_packages prometheus-client==0.26.0 numpy==2.3.5
cat >"$work/latencies.py" <<'END'
"""Prints the time per output token of a request, by the tokens of its iterations."""

import enum
import sys
import types
from importlib.metadata import distribution
from types import SimpleNamespace
from unittest.mock import MagicMock

# The engine needs torch; its statistics do not.
for name in ("lmdeploy", "lmdeploy.metrics"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("lmdeploy").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("messages", "utils"):
    sys.modules[f"lmdeploy.{name}"] = MagicMock()
Response = sys.modules["lmdeploy.messages"].ResponseType = enum.Enum("Response", "SUCCESS FINISH")

from lmdeploy.metrics.loggers import PrometheusStatLogger
from lmdeploy.metrics.stats import IterationStats, RequestStats
from prometheus_client import REGISTRY

ITERATIONS = 100
SECONDS = 0.02


def latency(label, *tokens):
    logger = PrometheusStatLogger(label, max_model_len=4096)
    request = RequestStats(arrival_time=1000.0, prompt_tokens=10)
    # The first iteration is the prefill, which gives one token.
    for number in range(ITERATIONS + 1):
        now = 1000.1 + SECONDS * number
        iteration = IterationStats()
        iteration.iteration_timestamp = now
        output = SimpleNamespace(
            status=Response.FINISH if number == ITERATIONS else Response.SUCCESS,
            token_ids=[1] * (tokens[number % len(tokens)] if number else 1),
            req_metrics=SimpleNamespace(token_timestamp=now),
        )
        iteration.update_from_output(output, request)
        logger.record_iteration(iteration)
    logger.record_finish(request)

    def published(name):
        labels = {"model_name": label, "engine": "0"}
        return REGISTRY.get_sample_value(f"lmdeploy:{name}", labels)

    per_token = "time_per_output_token_seconds"
    mean = published(f"{per_token}_sum") / published(f"{per_token}_count")
    decoded = published("generation_tokens_total") - 1
    real = published("request_decode_time_seconds_sum") / decoded
    print(f"{label}: mean {1000 * mean:.1f} ms, decode time over tokens {1000 * real:.1f} ms")


latency("1 token", 1)
latency("4 and 1 tokens", 4, 1)
latency("4 tokens", 4)
END
seen "$("$work/venv/bin/python" -W ignore "$work/latencies.py")" <<'END'
1 token: mean 20.0 ms, decode time over tokens 20.0 ms
4 and 1 tokens: mean 12.5 ms, decode time over tokens 8.0 ms
4 tokens: mean 5.0 ms, decode time over tokens 5.0 ms
END
