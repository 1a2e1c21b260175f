#!/usr/bin/env bash
# EvalScope's acceptance leaves out each request that speculation did not help.
#
# Version:   evalscope 1.14.1, evalscope.perf. Its documents give "Decoded Tok/Iter" as the total
#            output tokens - 1 over the total chunks - 1, a measure of the draft's accuracy.
# Expected:  A request without an accepted draft counts as one token an iteration.
# Behaviour: Each request has a ratio of its own, a request whose ratio is 1 or less is left out,
#            and what remains is averaged without weights. "Spec. Accept Rate" follows from it.
# Seen:      nine streams of 101 tokens in 101 chunks, and one of 101 tokens in 26 chunks:
#            4.0 tokens an iteration, accept rate 0.75; the documented ratio of totals is 1.08
# Matters:   The fewer requests a draft model helps, the less its failure shows: nine of ten that
#            only pay for drafts leave the number as it was, and a server that stops accepting
#            anything for most of its load keeps its acceptance.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps evalscope==1.14.1 colorlog==6.12.0
cat >"$work/acceptance.py" <<'END'
"""Prints the acceptance of one run, by the streams in it."""

import sys
import types
from importlib.metadata import distribution

# Data sets and evaluators need a hundred packages; the statistics do not.
for name in ("evalscope", "evalscope.perf"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("evalscope").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]

from evalscope.perf.utils.benchmark_util import BenchmarkData, MetricsAccumulator

TOKENS = 101
SECONDS = 0.02


def stream(chunks):
    return BenchmarkData(
        success=True,
        is_stream=True,
        start_time=1.0,
        completed_time=1.0 + SECONDS * chunks,
        query_latency=SECONDS * chunks,
        first_chunk_latency=SECONDS,
        chunk_times=[SECONDS * (1 + chunk) for chunk in range(chunks)],
        prompt_tokens=10,
        completion_tokens=TOKENS,
    )


def acceptance(label, *chunks):
    run = MetricsAccumulator(concurrency=1)
    for number in chunks:
        run.update(stream(number), None)
    shown = run.to_result().create_message()
    iteration = shown.get("Avg Decoded Tok/Iter", "none")
    rate = shown.get("Spec. Accept Rate", "none")
    totals = (TOKENS * len(chunks) - 1) / (sum(chunks) - 1)
    print(f"{label}: {iteration} tokens an iteration, rate {rate}, of totals {totals:.2f}")


acceptance("one that gains", 26)
acceptance("and nine that do not", 26, *[TOKENS] * 9)
acceptance("only those nine", *[TOKENS] * 9)
END
seen "$("$work/venv/bin/python" -W ignore "$work/acceptance.py")" <<'END'
one that gains: 4.0 tokens an iteration, rate 0.75, of totals 4.00
and nine that do not: 4.0 tokens an iteration, rate 0.75, of totals 1.08
only those nine: none tokens an iteration, rate none, of totals 1.00
END
