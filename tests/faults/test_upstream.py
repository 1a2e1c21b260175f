"""Faults of the server behind: nothing is served of one that cannot be read, and it comes back by itself."""

import time

import pytest

from faults.rig import Rig, assert_alive, counted, memory, new_errors, rigged, vllm
from support.builders import counters
from support.exporter import Metrics
from support.faulty_server import (
    Behaviour,
    FaultyServer,
    Peer,
    answer,
    capture,
    flood,
    sequence,
    status,
)
from support.programs import eventually

pytestmark = pytest.mark.full

BODY = capture()
MIB = 1024 * 1024

#: What the process may take at most: its own 60 MB, and an answer of 16 MiB with the pieces that it is in.
MOST_MEMORY = 150 * MIB


def test_redirect(rig: Rig) -> None:
    with FaultyServer(answer(BODY)) as elsewhere:
        rig.breaks(status("302 Found", Location=f"{elsewhere.url}/metrics"), "redirect")
        assert elsewhere.connections == 0


def test_wrong_content_type(rig: Rig) -> None:
    before = rig.mend()
    rig.server.behaviour = answer(vllm(), content_type="application/json")
    during = rig.exporter.wait_for(lambda m: m if m.value("drafts_total") == 1000 else None)
    assert during.value("up") == 1
    assert new_errors(before, during) == set()


def test_endless_headers(rig: Rig) -> None:
    rig.breaks(flood(b"HTTP/1.1 200 OK\r\n", b"X-Padding: xxxxxxxxxxxxxxxx\r\n" * 1000), "malformed")
    assert memory(rig.exporter) < MOST_MEMORY


def test_other_software(rig: Rig) -> None:
    resets = rig.exporter.metrics().value("engine_resets_total")
    rig.exporter.wait_for(lambda m: (m.value("window_span_seconds") or 0) > 0.4)
    begin = time.monotonic()
    rig.breaks(answer(b"# TYPE node_load1 gauge\nnode_load1 0.5\n"), "unrecognized")
    # Another process may have answered meanwhile: no window reaches back across that.
    anew = rig.exporter.wait_for(lambda m: m if m.value("window_span_seconds") else None)
    assert anew.value("window_span_seconds") < time.monotonic() - begin
    assert resets == anew.value("engine_resets_total")


# --- too much


def test_too_large() -> None:
    flags = ("--poll.interval", "2s", "--poll.timeout", "1900ms")  # also on a busy machine
    with rigged(*flags) as rig:
        rig.breaks(answer(b"#" * 79 + b"\n" + b"x" * (20 * MIB)), "too_large")
        assert memory(rig.exporter) < MOST_MEMORY


def test_many_series(rig: Rig) -> None:
    foreign = b"".join(b'other_total{code="%d",path="/v1"} 1\n' % number for number in range(100_000))
    before = rig.mend()
    rig.server.behaviour = answer(foreign + vllm())
    during = rig.exporter.wait_for(lambda m: m if m.value("drafts_total") == 1000 else None)
    assert_alive(rig.exporter)
    assert len(rig.exporter.get("/metrics").body) < MIB
    assert new_errors(before, during) == set()


def test_label_churn(rig: Rig) -> None:
    asked = 0

    async def churn(peer: Peer) -> None:
        nonlocal asked
        asked += 1
        await answer(vllm(model=f"model-{asked}")).run(peer)

    rig.server.behaviour = Behaviour(churn)
    eventually(lambda: asked >= 6)
    models = rig.exporter.metrics().labels("drafts_total")
    assert len(models) == 1
    assert models[0]["model_name"] in (f"model-{asked}", f"model-{asked - 1}")


# --- another life of the server


def _assert_sane(metrics: Metrics) -> None:
    """No rate is negative and no share above 1."""
    for name, samples in metrics.samples.items():
        if name.startswith("process_"):
            continue
        for labels, value in samples.items():
            assert value >= 0, (name, labels, value)
            assert not name.endswith("acceptance_ratio") or value <= 1, (name, labels, value)


def test_restart(rig: Rig) -> None:
    bodies = [vllm(counted(n)) for n in range(5, 9)]
    rig.server.behaviour = sequence(bodies)
    before = rig.exporter.wait_for(lambda m: m if (m.value("window_drafts") or 0) >= 2000 else None)
    resets = before.value("engine_resets_total", model_name="m")
    rig.server.behaviour = answer(vllm())
    after = rig.exporter.wait_for(
        lambda m: m if m.value("drafts_total") == 1000 and m.value("window_drafts") is not None else None
    )
    assert after.value("up") == 1
    assert after.value("engine_resets_total") == resets + 1
    assert after.value("window_drafts") == 0
    _assert_sane(after)
    assert rig.exporter.log_lines("counters reset")


def test_k_changes(rig: Rig) -> None:
    for positions in ((800, 500, 200, 100), (80, 40), (900, 800, 700, 600, 500, 400)):
        drafts = positions[0] + 100
        rig.server.behaviour = answer(vllm(counters(drafts, positions)))
        during = rig.exporter.wait_for(
            lambda m, drafts=drafts: m if m.value("drafts_total") == drafts else None
        )
        kept = during.values("accepted_tokens_per_position_total")
        assert list(kept.values()) == list(positions)
        assert during.value("up") == 1
        _assert_sane(during)


def test_engines_merge(rig: Rig) -> None:
    def engines(metrics: Metrics) -> set[str]:
        return {labels["engine"] for labels in metrics.labels("drafts_total")}

    rig.server.behaviour = answer(vllm(engines=2))
    rig.exporter.wait_for(lambda m: engines(m) == {"0", "1"})
    rig.server.behaviour = answer(vllm(counted(2)))
    after = rig.exporter.wait_for(lambda m: m if engines(m) == {"0"} else None)
    assert after.of_engines(engine="1") == set()
    assert after.value("drafts_total", engine="0") == 2000
    _assert_sane(after)
