"""Baselines: small ones made by hand, and the one of the recorded server without
speculation.
"""

from support.builders import series
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, LoadBucket
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.measures.history import Sample

BOUNDS = (0.1, 0.2, 0.4, 0.8)


def histogram(*observations: float) -> Histogram:
    """What a server counts of these observations, in seconds."""
    counts = tuple(
        float(sum(value <= bound for value in observations)) for bound in BOUNDS
    )
    return Histogram(BOUNDS, counts, float(len(observations)), float(sum(observations)))


def bucket(load: float, *seconds_per_token: float, rate: float = 100.0) -> LoadBucket:
    """A load bucket of ten seconds with these times per output token, at `rate` tokens
    per second.
    """
    return LoadBucket(
        requests_running=load,
        seconds=10.0,
        generation_tokens=10.0 * rate,
        requests=float(len(seconds_per_token)),
        latencies=Latencies(time_per_output_token=histogram(*seconds_per_token)),
    )


def baseline(
    *buckets: LoadBucket, model: str = "m", version: str = "0.32.0"
) -> Baseline:
    """A baseline of these buckets."""
    return Baseline(
        FORMAT,
        model_name=model,
        upstream_version=version,
        dialect="vllm-v1",
        recorded_at="2026-11-20T12:00:00Z",
        buckets=buckets,
    )


def samples(scenario: str) -> list[Sample]:
    """Recorded answers of a scenario with one engine, as the recorder takes them."""
    sampled = []
    for time, body in series(scenario):
        (engine,) = read(body, latencies=True).engines
        sampled.append(
            Sample(
                time,
                engine.counters,
                engine.load.requests_running,
                latencies=engine.latencies,
            )
        )
    return sampled


def record(sampled: list[Sample], settle: float = 30.0) -> Recorder:
    """What the recorder makes of these samples."""
    recorder = Recorder(settle)
    for sample in sampled:
        recorder.observe(sample)
    return recorder
