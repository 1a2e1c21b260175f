"""Rules read the series of engines in every spelling that the exporter reads."""

import re
from pathlib import Path

import pytest

from alerts.histories import replica
from alerts.lint.series import SPELLINGS
from alerts.promtool import History, Query, verify
from alerts.world import MODEL, Phase, World
from support.repository import ROOT

VLLM, SGLANG = SPELLINGS
UNWATCHED = "model:vllm_specdec_unwatched:ratio_rate5m"


def test_no_mean_is_asked_for_under_the_names_of_ray() -> None:
    """Its sums of histograms are made of the middles of their buckets."""
    files = [*(ROOT / "alerts" / "rules").iterdir()]
    files += (ROOT / "dashboards" / "json").iterdir()
    parts = re.compile(r'[^\s{}()]*ray_vllm[^\s{}]*?_(?:sum|count)(?=[\s{\\"])')
    found = {path.name: parts.findall(path.read_text("utf-8")) for path in files}
    assert {name: names for name, names in found.items() if names} == {}
    boards = (ROOT / "alerts" / "rules" / "boards.yml").read_text("utf-8")
    assert "kserve_vllm:request_decode_time_seconds_sum" in boards


def _verify(folder: Path, world: World, *queries: Query, rule: str) -> None:
    history = History("spelled", world, queries)
    assert verify(folder, history, rules={rule}, texts=False) == ""


@pytest.mark.parametrize("prefix", VLLM)
def test_a_server_that_lacks_its_sidecar_is_found(prefix: str, tmp_path: Path) -> None:
    world = World()
    replica(world, 1, Phase(40), server=40, prefix=prefix)
    world.server(40, instance="10.0.0.2:8000", labels={"pod": "vllm-2"}, prefix=prefix)
    name = "VLLMSpecDecodeSidecarMissing"
    alert = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
    missing = Query(35, f"count by (pod) ({alert})", {'{pod="vllm-2"}': 1})
    _verify(tmp_path, world, missing, rule=name)


@pytest.mark.parametrize("prefix", VLLM)
def test_monitoring_is_lost_where_a_server_still_serves(
    prefix: str, tmp_path: Path
) -> None:
    world = World()
    replica(world, 1, Phase(20), Phase(40, gone=True), server=60, prefix=prefix)
    name = "VLLMSpecDecodeMonitoringLost"
    alert = f'ALERTS{{alertname="{name}", alertstate="firing", severity="critical"}}'
    lost = Query(35, f"count by (reason) ({alert})", {'{reason="down"}': 1})
    _verify(tmp_path, world, lost, rule=name)


def _counted(world: World, prefix: str, **rates: float) -> None:
    """Add counters of one server, each by its growth in a minute."""
    labels = {"job": "servers", "instance": "10.0.0.1:8000", "model_name": MODEL}
    for name, rate in rates.items():
        world.put(prefix + name, labels, 0, [rate * minute for minute in range(20)])


@pytest.mark.parametrize("prefix", VLLM)
def test_an_unwatched_vllm_is_read(prefix: str, tmp_path: Path) -> None:
    world = World()
    _counted(
        world,
        prefix,
        spec_decode_num_drafts_total=600,
        spec_decode_num_draft_tokens_total=2400,
        spec_decode_num_accepted_tokens_total=1200,
    )
    _verify(tmp_path, world, *_ratios(acceptance=0.5, length=3), rule=UNWATCHED)


@pytest.mark.parametrize("prefix", SGLANG)
def test_an_unwatched_sglang_is_read(prefix: str, tmp_path: Path) -> None:
    world = World()
    _counted(
        world,
        prefix,
        spec_verify_calls_total=600,
        generation_tokens_total=1860,
        num_requests_total=60,
    )
    labels = {"job": "servers", "instance": "10.0.0.1:8000", "model_name": MODEL}
    for name, value in (("spec_num_steps", 4), ("spec_num_draft_tokens", 5)):
        world.put(prefix + name, labels, 0, [value] * 20)
    _verify(tmp_path, world, *_ratios(acceptance=0.5, length=3), rule=UNWATCHED)


def _ratios(**values: float) -> list[Query]:
    return [
        Query(
            16,
            f'round(sum by (measure) ({UNWATCHED}{{measure="{measure}"}}), 0.01)',
            {f'{{measure="{measure}"}}': value},
        )
        for measure, value in values.items()
    ]
