"""The numbers of series in docs/operations.md, held against the /metrics of a real exporter."""

import gzip
import re
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from dashboards.worlds import open_world, shared_folder
from scaling.clusters import ROOT, SAMPLES
from scaling.series import GROUPS, KINDS, MODELS, REQUESTS_K, TENANTS, formula, formula_of_requests, published

pytestmark = pytest.mark.full

CAPTURES = ROOT / "tests" / "data" / "captures" / "rendered"
DOCUMENT = (ROOT / "docs" / "operations.md").read_text("utf-8")


def test_the_page_is_current() -> None:
    """`make generate` would write it so."""
    command = [sys.executable, "-m", "scaling.series", "--check"]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_the_formulas_are_exact() -> None:
    """Also for exporters that they were not derived from."""
    own, requests = await formula(), await formula_of_requests()
    for k, engines, windows in ((7, 2, 3), (5, 3, 1), (4, 1, 2)):
        assert (await published(k, engines, windows)).total() == own.total(k, engines, windows)
    k = REQUESTS_K
    some, none = await published(k, kinds=KINDS), await published(k, kinds=())
    assert some.total() - own.total(k) == requests.total(k, MODELS, GROUPS, TENANTS)
    assert none.total() - own.total(k) == requests.total(k)


def test_what_rules_add_for_engines_and_pods(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Recorded series of each engine and each pod, as the document has them for every K."""
    with open_world("healthy", shared_folder(tmp_path_factory)) as world:
        ks = {
            dict(labels)["model_name"]: int(rows[-1])
            for (name, labels), rows in world.scraped.series.items()
            if name == "vllm_specdec_num_speculative_tokens"
        }
        recorded: Counter[tuple[str, ...]] = Counter()
        for name, pairs in world.recorded.series:
            labels = dict(pairs)
            own = ("model_name",) if name.startswith("model:") else ("model_name", "instance", "engine")
            if not name.startswith(("ALERTS", "namespace:")):
                recorded[name.partition(":")[0], *(labels.get(label, "") for label in own)] += 1
    assert len(set(ks.values())) > 1
    for (level, model, *_), count in recorded.items():
        fixed = {"engine": 9, "instance": 3, "model": 79 + 2 * ks[model]}[level]
        assert count == fixed, (level, model)


@pytest.mark.parametrize(
    ("name", "whole", "kept"),
    [("vllm-0.32.0-1engine-k3.classic", 421, 116), ("vllm-0.32.0-8engine-k5.classic", 3260, 944)],
)
def test_what_vllm_itself_has(name: str, whole: int, kept: int) -> None:
    """The document's numbers are those of recorded answers, before and behind the agent's sample."""
    body = gzip.decompress((CAPTURES / f"{name}.txt.gz").read_bytes()).decode()
    names = [re.split("[{ ]", line)[0] for line in body.splitlines() if line and not line.startswith("#")]
    jobs = yaml.safe_load((SAMPLES / "remote-write" / "agent.yml").read_text("utf-8"))["scrape_configs"]
    keep = re.compile(jobs[1]["metric_relabel_configs"][0]["regex"])
    assert len(names) == whole
    assert sum(keep.fullmatch(one) is not None for one in names) == kept
    assert f"{whole:,}" in DOCUMENT
    assert f"{kept:,}" in DOCUMENT
