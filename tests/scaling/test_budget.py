"""The numbers of series in docs/operations.md, held against the /metrics of a real
exporter.
"""

import gzip
import re

import pytest

from scaling.clusters import SAMPLES
from scaling.series import (
    GROUPS,
    KINDS,
    MODELS,
    REQUESTS_K,
    TENANTS,
    of_requests,
    published,
)
from support.repository import ROOT, data_of, text_of

pytestmark = pytest.mark.full

CAPTURES = ROOT / "tests/data/captures/rendered"
DOCUMENT = text_of("docs/operations.md")


async def test_single_requests_add_what_the_page_says() -> None:
    """The numbers for each model, position, group and tenant add up to those of an
    exporter with them all.
    """
    plain = await published(REQUESTS_K)
    none = await published(REQUESTS_K, kinds=())
    more = await of_requests()
    some = await published(REQUESTS_K, kinds=KINDS)
    of_models = MODELS * (more["model"] + REQUESTS_K * more["position"])
    owners = of_models + GROUPS * more["group"] + TENANTS * more["tenant"]
    assert (none - plain).total() == more["fixed"]
    assert (some - plain).total() == more["fixed"] + owners


@pytest.mark.parametrize(
    ("name", "series", "kept"),
    [
        ("vllm-0.32.0-1engine-k3.classic", 421, 119),
        ("vllm-0.32.0-8engine-k5.classic", 3260, 968),
    ],
)
def test_what_vllm_itself_has(name: str, series: int, kept: int) -> None:
    """The document's numbers are those of recorded answers, before and behind the
    agent's sample.
    """
    body = gzip.decompress((CAPTURES / f"{name}.txt.gz").read_bytes()).decode()
    names = [
        re.split("[{ ]", line)[0]
        for line in body.splitlines()
        if line and not line.startswith("#")
    ]
    jobs = data_of(SAMPLES / "remote-write/agent.yml")["scrape_configs"]
    keep = re.compile(jobs[1]["metric_relabel_configs"][0]["regex"])
    assert len(names) == series
    assert sum(keep.fullmatch(name) is not None for name in names) == kept
    assert f"{series:,}" in DOCUMENT
    assert f"{kept:,}" in DOCUMENT
