"""The baseline: how fast a server is without speculation, recorded once, and compared with ever after.

* `record`: from samples of a server that does not speculate, latencies and throughput by load.
* `document`: the small versioned file.
* `match`: what a server does now beside what the baseline does at the same load.
* `watch`: the samples of a server, taken at a fixed beat.
* `command`: `vllm-specdec-exporter baseline`.
"""

from .document import Baseline, BaselineError, LoadBucket, decode, encode
from .file import load
from .match import LatencyRatio, Match, Measured, compare
from .record import Recorder

__all__ = [
    "Baseline",
    "BaselineError",
    "LatencyRatio",
    "LoadBucket",
    "Match",
    "Measured",
    "Recorder",
    "compare",
    "decode",
    "encode",
    "load",
]
