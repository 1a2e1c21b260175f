"""A baseline for a world: what the `baseline` command would have recorded without
speculation.
"""

from pathlib import Path

from dashboards.worlds_traffic import TICK, Phase, answer, count, texts, traffic
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, encode
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.history import Sample

#: Clients of each load that is recorded.
_LOADS = (2, 6, 12, 24, 40)


def record(path: Path, model: str) -> Path:
    """Record a server without speculation at several loads, and return the file."""
    recorder = Recorder()
    for clients in _LOADS:
        counts = count(
            (Phase(10, traffic("off", 0, clients=clients)),), model, "0", seed=clients
        )
        keys = texts(counts, "vllm:")
        for tick in range(counts.ticks):
            (engine,) = read(answer(counts, keys, tick), latencies=True).engines
            recorder.observe(
                Sample(
                    tick * TICK,
                    engine.counters,
                    engine.load.requests_running,
                    latencies=engine.latencies,
                )
            )
        recorder.interrupt()
    baseline = Baseline(
        FORMAT,
        model,
        upstream_version="0.32.0",
        dialect="vllm-v1",
        recorded_at="2026-11-20T12:00:00Z",
        buckets=recorder.buckets(),
    )
    path.write_bytes(encode(baseline))
    return path
