#!/usr/bin/env bash
# Dynamo's planner takes SGLang workers without traffic for workers that accept nothing.
#
# Version:   ai-dynamo 1.6.1 (its planner) with sglang 0.5.23 and prometheus 3.5.3+ds1-6 (Debian).
#            The planner's own description: tokens produced per decode forward.
# Expected:  A worker that has verified no draft has no part in the accept length.
# Behaviour: The gauge sglang:spec_accept_length is 0 until a worker has decoded its first forty
#            batches. The planner takes the mean over its interval and over the workers,
#            unweighted, and divides the time of a forward pass by it.
# Seen:      two workers that accept 3.0: 3.0; the same two beside two new ones: 1.5. If a forward
#            pass takes 10 ms and 0.1 ms a request, a token may take 10 ms and 150 requests/s come,
#            two workers suffice by the first, and eight by the second
# Matters:   Scaling up lowers the accept length that scaling up is decided by: it looks as if the
#            draft model got worse with each new worker. The zeros count until they leave the
#            interval, and those of a spare worker, which gets no traffic, never do. A panel with
#            the same mean shows the same fall.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

debian sid prometheus=3.5.3+ds1-6
python_packages --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1 sglang==0.5.23
python_packages prometheus-api-client==0.7.2 prometheus-client==0.26.0
python_packages msgspec==0.22.0 pydantic==2.13.5 uvloop==0.23.0
cat >"$work/worker.py" <<'END'
"""Prints the metrics of a worker's scheduler: python worker.py ACCEPT_LENGTH, none for a new one."""

import sys
import types
from importlib.metadata import distribution
from unittest.mock import MagicMock

# The engine needs torch; its metrics do not.
for name in ("sglang", "sglang.srt", "sglang.srt.observability"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("sglang").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in (
    "disaggregation.utils",
    "model_executor.forward_batch_info",
    "observability.scheduler_stage_metrics",
    "runtime_context",
    "server_args",
    "utils",
    "utils.gauge_histogram",
):
    sys.modules[f"sglang.srt.{name}"] = MagicMock()
# A setting that a histogram's buckets are made of.
schedule = sys.modules["sglang.srt.runtime_context"].get_schedule.return_value
schedule.prefill_delayer_max_delay_passes = 30

from prometheus_client import generate_latest
from sglang.srt.observability.metrics_collector import SchedulerMetricsCollector, SchedulerStats

labels = dict.fromkeys(("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank"), "0")
stats = SchedulerStats()
if len(sys.argv) > 1:
    stats.spec_accept_length = float(sys.argv[1])
SchedulerMetricsCollector(labels, MagicMock()).log_stats(stats)
print(generate_latest().decode(), end="")
END
cat >"$work/planner.py" <<'END'
"""Prints the planner's accept length of two deployments, and what it makes of it."""

import math
import sys
import types
from importlib.metadata import distribution
from unittest.mock import MagicMock

# Its connectors need Kubernetes, and the estimate of a forward pass a package of NVIDIA's index.
for name in ("planner", "planner.monitoring", "planner.core", "planner.core.perf_model"):
    name = f"dynamo.{name}"
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("ai-dynamo").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in ("aisimulate_core", "aisimulate_core.sdk"):
    sys.modules[name] = MagicMock()

from dynamo.planner.core.perf_model import engine_query
from dynamo.planner.monitoring.traffic_metrics import PrometheusAPIClient

REQUESTS_A_SECOND = 150
client = PrometheusAPIClient(f"http://127.0.0.1:{sys.argv[1]}", "dynamo")


class Forward:
    """A forward pass: 10 ms and 0.1 ms a request."""

    def estimate_forward_pass_time_ms(self, ranks):
        return 10 + 0.1 * ranks[0]["scheduled_requests"]["num_decode_requests"]


model = engine_query.AISCoreEnginePerfModel(
    model=Forward(),
    worker_type="decode",
    limits=engine_query.EnginePerfLimits(8192, 256, 1_000_000),
    attention_dp_size=1,
    max_observations=1,
)
for component in ("two", "four"):
    length = client.get_avg_spec_decode_accept_length("10s", "sglang", component, "m")
    request = engine_query.EngineCapacityRequest(
        isl=1000, osl=250, itl_sla_s=0.01, accept_length=length
    )
    rate = model.find_engine_capacity_rps(request).rps
    workers = math.ceil(REQUESTS_A_SECOND / rate)
    print(f"{component} workers: accept length {length:.1f}, {rate:.0f} requests/s each, so {workers}")
END
"$work/venv/bin/python" "$work/worker.py" 3 >"$work/busy"
"$work/venv/bin/python" "$work/worker.py" >"$work/new"
busy=$(free_port)
start busy python3 "$(dirname "$0")/shared/target.py" "$busy" "$work/busy"
new=$(free_port)
start new python3 "$(dirname "$0")/shared/target.py" "$new" "$work/new"
# The labels are those that Dynamo adds to a worker's metrics; "pod" tells workers apart.
python3 - "$busy" "$new" >"$work/prometheus.yml" <<'END'
import json
import sys

busy, new = (f"127.0.0.1:{port}" for port in sys.argv[1:])
labels = {"dynamo_namespace": "dynamo", "dynamo_endpoint": "generate", "model": "m"}
deployments = {"two": [busy, busy], "four": [busy, busy, new, new]}
targets = [
    {"targets": [worker], "labels": {**labels, "dynamo_component": name, "pod": str(pod)}}
    for name, workers in deployments.items()
    for pod, worker in enumerate(workers)
]
jobs = [{"job_name": "workers", "static_configs": targets}]
print(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
END
port=$(free_port)
start prometheus "$work/sid/usr/bin/prometheus" --config.file="$work/prometheus.yml" \
  --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$port"
until_ready "http://127.0.0.1:$port/-/ready"
until_stored "$port" 'count({__name__="sglang:spec_accept_length"}) == 6'

seen "$("$work/venv/bin/python" -W ignore "$work/planner.py" "$port" 2>"$work/planner.log")" <<'END'
two workers: accept length 3.0, 80 requests/s each, so 2
four workers: accept length 1.5, 20 requests/s each, so 8
END
