"""The tenth request from below, where Prometheus stores native histograms in place of the classic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.promtool import RULES
from alerts.pushing import TOKEN, pushing
from prometheus.exporter_process import exporter, simulator
from prometheus_server import PrometheusServer

if TYPE_CHECKING:
    from collections.abc import Iterator

P10 = "model:vllm_specdec_request_acceptance_ratio:p10_rate30m"
CLASSIC = "vllm_specdec_request_acceptance_ratio_bucket"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An exporter to which requests are pushed: half of them accept 25 of 30 tokens, half 6."""
    token = tmp_path_factory.mktemp("push") / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with (
        simulator() as url,
        exporter("--vllm.url", url, "--push.bearer-token-file", str(token)) as found,
        pushing(found),
    ):
        yield found


@pytest.mark.parametrize(
    ("flags", "lower", "upper"), [((), 0.1, 0.2), (("--enable-feature=native-histograms",), 0.19, 0.211)]
)
def test_it_is_recorded_from_either_form(
    address: str, flags: tuple[str, ...], lower: float, upper: float
) -> None:
    """It lies in the bucket of 0.2, the native one of which is narrower."""
    config = {"rule_files": ["requests.yml"]}
    files = {"requests.yml": (RULES / "requests.yml").read_text("utf-8")}
    with PrometheusServer({"exporter": address}, config=config, files=files, flags=flags) as prometheus:
        prometheus.wait_for(P10)
        (p10,) = prometheus.query(P10).values()
        classic = prometheus.query(CLASSIC)
    assert lower < p10 <= upper
    assert bool(classic) is not bool(flags)
