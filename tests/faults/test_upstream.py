"""Faults of the server behind: nothing is served of one that cannot be read, and it
comes back by itself.
"""

import time

import pytest

from faults.rig import Rig, assert_alive, memory, new_errors, rigged, vllm
from support.faulty_server import answer

pytestmark = pytest.mark.full

MIB = 1024 * 1024

#: What the process may take at most: its own 60 MB, and an answer of 16 MiB with the
#: pieces that it is in.
MOST_MEMORY = 150 * MIB


def test_other_software(rig: Rig) -> None:
    resets = rig.exporter.metrics().value("engine_resets_total")
    rig.exporter.wait_for(lambda m: m.total("window_span_seconds") > 0.4)
    begin = time.monotonic()
    rig.breaks(answer(b"# TYPE node_load1 gauge\nnode_load1 0.5\n"), "unrecognized")
    # Another process may have answered meanwhile: no window reaches back across that.
    anew = rig.exporter.metrics_when(lambda m: m.value("window_span_seconds"))
    assert anew.value("window_span_seconds") < time.monotonic() - begin
    assert resets == anew.value("engine_resets_total")


# --- too much


def test_too_large() -> None:
    # also on a busy machine
    flags = ("--poll.interval", "2s", "--poll.timeout", "1900ms")
    with rigged(*flags) as rig:
        rig.breaks(answer(b"#" * 79 + b"\n" + b"x" * (20 * MIB)), "too_large")
        assert memory(rig.exporter) < MOST_MEMORY


def test_many_series(rig: Rig) -> None:
    foreign = b"".join(
        b'other_total{code="%d",path="/v1"} 1\n' % number for number in range(100_000)
    )
    mended = rig.mend()
    rig.server.behaviour = answer(foreign + vllm())
    during = rig.exporter.metrics_when(lambda m: m.value("drafts_total") == 1000)
    assert_alive(rig.exporter)
    assert len(rig.exporter.get("/metrics").body) < MIB
    assert new_errors(mended, during) == set()
