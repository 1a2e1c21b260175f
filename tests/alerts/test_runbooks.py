"""Runbooks: complete, true to the rules, and their queries and commands work.

The queries run as they stand, placeholders included: a simulated server of the model
`MODEL` and its exporter, to which requests of two types are pushed, are scraped under
the labels that the runbooks name. They must yield something there, so that a wrong
label or a misspelt series is found. Where a query is empty in good times, a comment in
it says so.
"""

import contextlib
import json
import math
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import lint
from alerts.pushing import TOKEN, pushing
from docs.inventory import blocks_of
from support.commands import run
from support.exporter import running_exporter
from support.ports import free_port
from support.programs import simulator
from support.prometheus import PrometheusServer

HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
#: What a query says of itself that yields something in trouble only.
EMPTY = "# Empty "
SCHEDULE = json.dumps(
    {
        "method": "eagle3",
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 512, 2]],
    }
)

#: Seconds in which everything must have been scraped, recorded and judged.
PATIENCE = 90.0


# --- what the runbooks and the rules say


@dataclass(frozen=True)
class Runbook:
    """One page."""

    name: str
    text: str

    @property
    def sections(self) -> dict[str, str]:
        """The text below each heading of the second level."""
        parts = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def fences(self, language: str, text: str | None = None) -> list[str]:
        """The fenced blocks of a language, with their indentation taken off."""
        blocks = blocks_of(text or self.text, self.name)
        return [
            block.text.rstrip("\n") for block in blocks if block.language == language
        ]


@cache
def rules() -> dict[str, list[dict[str, Any]]]:
    """The alerts by name."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for rule in lint.read_bundle().alerts:
        by_name.setdefault(rule.name, []).append(dict(rule.body))
    return by_name


@cache
def runbooks() -> dict[str, Runbook]:
    """The pages by alert name."""
    return {
        path.stem: Runbook(path.stem, path.read_text("utf-8"))
        for path in sorted(lint.RUNBOOKS.glob("*.md"))
        if path.name != "README.md"
    }


@cache
def queries() -> frozenset[str]:
    """Every query of every page."""
    return frozenset(
        query for page in runbooks().values() for query in page.fences("promql")
    )


def spoken(duration: str) -> str:
    """A duration of a rule as the pages write it: `1 hour`, `15 minutes`."""
    number = int(duration[:-1])
    unit = {"m": "minute", "h": "hour"}[duration[-1]]
    return f"{number} {unit}{'' if number == 1 else 's'}"


# --- complete


def test_every_page_has_sections_in_order_and_a_numbered_diagnosis_with_a_query() -> (
    None
):
    for name, page in runbooks().items():
        sections = page.sections
        assert page.text.startswith(f"# {name}\n\n## Meaning\n")
        assert list(sections) == HEADINGS, name
        steps = re.findall(r"^(\d+)\. ", sections["Diagnosis"], re.MULTILINE)
        assert steps == [str(number) for number in range(1, max(3, len(steps)) + 1)], (
            name
        )
        assert page.fences("promql", sections["Diagnosis"]), name


def test_index_lists_every_alert_with_its_severities() -> None:
    text = (lint.RUNBOOKS / "README.md").read_text("utf-8")
    rows = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.md\) \| ([\w, ]+) \| .+ \|$", text, re.MULTILINE
    )
    assert all(name == file for name, file, _ in rows)
    listed = {name: severities for name, _, severities in rows}
    assert len(rows) == len(listed)
    assert listed == {
        name: ", ".join(dict.fromkeys(rule["labels"]["severity"] for rule in found))
        for name, found in rules().items()
    }


# --- true to the rules


def test_meaning_names_thresholds_durations_and_what_tells_rules_apart() -> None:
    missing = []
    for name, found in rules().items():
        meaning = " ".join(runbooks()[name].sections["Meaning"].split())
        wanted = {
            f"`{limit}`"
            for rule in found
            # It asks whether they are there, all of them.
            if name != "VLLMSpecDecodeRulesBlind"
            for limit in re.findall(r"model:vllm_specdec_(\w+):threshold", rule["expr"])
        }
        wanted |= {
            spoken(rule[key])
            for rule in found
            for key in ("for", "keep_firing_for")
            if key in rule
        }
        for label in ("severity", "level", "reason", "against"):
            values = {rule["labels"].get(label, "") for rule in found} - {""}
            wanted |= values if len(values) > 1 else set()
        missing += [(name, words) for words in sorted(wanted) if words not in meaning]
    assert missing == []


# --- commands


def test_every_silence_is_of_its_alert_by_labels_that_it_has() -> None:
    silences = [
        (name, shlex.split(line))
        for name, page in runbooks().items()
        for block in page.fences("sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("amtool silence add")
    ]
    assert set(rules()) - {page for page, _ in silences} == {"VLLMSpecDecodeWatchdog"}
    for name, words in silences:
        flags = dict(word.split("=", 1) for word in words[3:] if word.startswith("--"))
        assert set(flags) == {"--duration", "--comment"}, name
        matchers = dict(
            re.split("=~|=", word, maxsplit=1)
            for word in words[3:]
            if not word.startswith("--")
        )
        assert matchers.pop("alertname") == name
        for label, value in matchers.items():
            own = [
                rule["labels"][label]
                for rule in rules()[name]
                if label in rule["labels"]
            ]
            if own:
                assert any(re.fullmatch(value, one) for one in own), (name, label)
            else:
                assert label in {"namespace", "model_name", "instance"}, name


# --- queries


def rule_files() -> dict[str, str]:
    """The rule files with every group evaluated each second, days made of seconds
    rather than hours, and what was minutes ago seconds ago.
    """
    return {
        path.name: _in_seconds(path.read_text("utf-8"))
        for path in sorted(lint.RULES.glob("*.yml"))
    }


def _in_seconds(rules: str) -> str:
    intervals = r"(?m)^( +)interval: \w+$"
    rules = re.sub(intervals, r"\1interval: 1s", rules)
    rules = re.sub(r"\[\d+[dh]:\d+[mh]\]", "[1m:1s]", rules)
    return re.sub(r"\boffset \d+m\b", "offset 3s", rules)


#: Where both run, as the runbooks write it.
POD = {"namespace": "NAMESPACE", "pod": "POD"}


def job(name: str, address: str, **labels: str) -> dict[str, Any]:
    """A scrape job of one target."""
    return {
        "job_name": name,
        "static_configs": [{"targets": [address], "labels": labels}],
    }


@contextlib.contextmanager
def simulated(folder: Path, k: int, clients: Sequence[int]) -> Iterator[str]:
    """Run two engines that answer in few tokens, so that times per token fill several
    buckets.
    """
    phases = [
        {"phase": "healthy", "seconds": 20, "clients": n, "output_tokens": 6}
        for n in clients
    ]
    scenario = folder / f"scenario-{k}.yaml"
    scenario.write_text(yaml.safe_dump({"phases": phases}), encoding="utf-8")
    flags = ("--speed", "20", "--engines", "2", "--model", "MODEL", "--seed", "1")
    flags += (f"--scenario.file={scenario}", f"--num-speculative-tokens={k}")
    with simulator(*flags) as url:
        yield url


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `baseline` records of a simulated server without speculation, at several
    loads.
    """
    folder = tmp_path_factory.mktemp("baseline")
    file = folder / "baseline.json"
    with simulated(folder, k=0, clients=(6, 12, 24)) as url:
        times = ("--for", "8s", "--interval", "250ms")
        done = run("baseline", url, *times, f"--out={file}")
    assert done.code == 0, done.err
    return file


@pytest.fixture(scope="module")
def live(
    baseline: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """Two engines of a speculating server, its exporter, to which requests are pushed,
    and a Prometheus.
    """
    files = rule_files()
    folder = tmp_path_factory.mktemp("prometheus")
    itself = folder / "itself.json"
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    options = (
        "--poll.interval=1s",
        "--poll.timeout=900ms",
        "--window=10s",
        "--window=5m",
        "--judgement.window=10s",
        f"--spec.config={SCHEDULE}",
        f"--baseline.file={baseline}",
        f"--tap.listen-address=127.0.0.1:{free_port()}",
        f"--push.bearer-token-file={token}",
        "--requests.window=60s",
    )
    with (
        simulated(folder, k=2, clients=[24]) as url,
        running_exporter(f"--vllm.url={url}", *options, fast=False) as running,
        pushing(running.address),
    ):
        config = {
            "rule_files": list(files),
            "scrape_configs": [
                job(
                    "vllm-specdec-exporter",
                    running.address,
                    namespace="NAMESPACE",
                    instance="INSTANCE",
                    pod="POD",
                ),
                job("vllm", url.removeprefix("http://"), **POD),
                {
                    "job_name": "prometheus",
                    "file_sd_configs": [
                        {"files": [str(itself)], "refresh_interval": "1s"}
                    ],
                },
            ],
        }
        with PrometheusServer(config=config, files=files) as prometheus:
            own = prometheus.url.removeprefix("http://")
            itself.write_text(json.dumps([{"targets": [own]}]), encoding="utf-8")
            yield prometheus


def test_every_query_asks_for_what_exists() -> None:
    bundle = lint.read_bundle()
    said = {
        query: lint.query_complaints(query, bundle, lint.PROMETHEUS)
        for query in queries()
    }
    assert {query: words for query, words in said.items() if words} == {}


def yields(prometheus: PrometheusServer, query: str) -> bool:
    """Tell whether a query has a series with a number, with a past of some seconds in
    place of a day's.
    """
    for one in dict.fromkeys((query, query.replace("offset 1d", "offset 3s"))):
        if any(not math.isnan(value) for value in prometheus.query(one).values()):
            return True
    return False


@pytest.mark.full
def test_every_query_yields_something_where_it_should(live: PrometheusServer) -> None:
    assert len(queries()) > 2 * len(runbooks())
    missing = [query for query in queries() if EMPTY not in query]
    end = time.monotonic() + PATIENCE
    while missing := [query for query in missing if not yields(live, query)]:
        assert time.monotonic() < end, f"nothing for {missing}"
        time.sleep(0.5)


def test_queries_that_are_empty_in_good_times_are_few() -> None:
    """What cannot be seen to work here could hide a mistake."""
    assert len([query for query in queries() if EMPTY in query]) <= 2
