"""A real vLLM is restarted with another K, and back: advice and the board's *Before and
after each change* say the same.

Both compare times per output token, each by its own way: the exporter remembers what it
polled, the board asks Prometheus. Each drafted position is made to take a time beside
which that of a busy processor is short. By its cost profile it takes hardly any, so
that only what was measured can advise the smaller K.
"""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from support.exporter import RunningExporter, running_exporter
from support.prometheus import PrometheusServer

from .conftest import REPOSITORY, Servers
from .server import MODEL_NAME, VllmServer, drive

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

#: How many times faster every clock runs but that of the engine: a quarter of an hour
#: of each K is too long for a test. Times per token stay as they are.
SPEED = 60.0
LESS, MORE = 3, 5
#: Of its drafts mostly the first token alone is accepted.
DRAFTER = "draft-0.08"
#: Seconds of a position, so that two of them more are long beside a step of the target.
POSITION_SECONDS = 0.1
#: Seconds of a life: as `measures.trials` needs to compare two K (a minute of warm-up
#: and six blocks of two minutes, of which the first and the last are cut), and as the
#: board needs where both are known.
LIFE = 17 * 60 / SPEED
#: In the batch are four of them, which is the middle of a load of 2.8 to 5.7.
CLIENTS = 5

#: The exporter, with the clock of its trials.
COMMAND = f"""
import sys
from vllm_specdec_exporter.cli import main
from vllm_specdec_exporter.measures import trials

trials._BLOCK /= {SPEED}
trials._WARM_UP /= {SPEED}
sys.exit(main())
"""
#: A curve that says to raise K as far as it goes.
COSTS = """
profiles:
  free:
    provenance: positions that cost next to nothing
    basis: calibrated
    uncertainty: 0.05
    target: {fixed: 1.0}
    draft: {per_position: 0.01}
"""
#: How the queries of two columns begin.
TIMES = "avg_over_time(model:vllm_specdec_set:tpot"
SINCE_THEN = "sgn("
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(
    r"(?<=[\[:])\d+[smhd](?=[\]:])|(?<=offset )\d+[smhd]|(?<=    interval: )\d+[smhd]"
)


def quickened(text: str) -> str:
    """Return rules or a query with all durations divided by `SPEED`."""

    def divided(match: re.Match[str]) -> str:
        seconds = int(match[0][:-1]) * SECONDS[match[0][-1]]
        return f"{max(1, round(seconds * 1000 / SPEED))}ms"

    return DURATION.sub(divided, text)


def column(beginning: str) -> str:
    """Return the query of *Before and after each change* that begins so."""
    board = REPOSITORY / "dashboards" / "json" / "vllm-specdec-deep-dive.json"
    (panel,) = (
        panel
        for panel in panels(json.loads(board.read_text("utf-8")))
        if panel.get("title") == "Before and after each change"
    )
    (query,) = (
        target["expr"]
        for target in panel["targets"]
        if target["expr"].startswith(beginning)
    )
    asked = query.replace("$__range", "6h").replace("$model_name", MODEL_NAME)
    return quickened(re.sub(r"\$(cluster|namespace)", ".*", asked))


def panels(parent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in parent.get("panels", ()):
        yield panel
        yield from panels(panel)


@dataclass(frozen=True)
class Seen:
    """What is shown when a life with one K has lasted long enough."""

    advice: dict[str, Any]
    page: str
    #: By K, and of several lives the last one: the time per output token, and whether
    #: the present K is faster (2) or slower (-2), as the board has it.
    times: dict[int, float]
    since_then: dict[int, float]

    @property
    def tried(self) -> list[int]:
        """The K that really ran besides the present one."""
        return [
            option["num_speculative_tokens"]
            for option in self.advice["options"]
            if option["tried"]
        ]

    def gain(self, k: int, over: int) -> float:
        """Return how many times as fast as another a K is by the advice."""
        speedups = {
            option["num_speculative_tokens"]: option["speedup"]
            for option in self.advice["options"]
        }
        return float(speedups[k] / speedups[over])


def look(running: RunningExporter, prometheus: PrometheusServer) -> Seen:
    (target,) = running.snapshot()["targets"]
    (engine,) = target["engines"]

    def by_k(beginning: str) -> dict[int, float]:
        rows = prometheus.query(column(beginning))
        ordered = sorted(rows.items(), key=lambda row: dict(row[0])["was_start"])
        return {int(dict(labels)["was_k"]): value for labels, value in ordered}

    return Seen(
        engine["advice"],
        page=running.get("/").text,
        times=by_k(TIMES),
        since_then=by_k(SINCE_THEN),
    )


def live(
    server: VllmServer,
    seconds: float,
    running: RunningExporter,
    prometheus: PrometheusServer,
) -> Seen:
    """Send requests for so long; return what is shown then."""
    server.wait_until_ready()
    # Without a draft each, so that the context of requests is soon known.
    drive(server, 24, concurrency=1, max_tokens=1)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(
            drive, server, 10_000, concurrency=CLIENTS, max_tokens=16, stop=stop
        )
        try:
            time.sleep(seconds)
            return look(running, prometheus)
        finally:
            stop.set()
            load.result(timeout=60)


@pytest.fixture(scope="module")
def lives(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What is shown after the larger K, the smaller one, and the larger one again."""
    folder = tmp_path_factory.mktemp("change")
    for name in ("recording", "boards"):
        text = (REPOSITORY / "alerts" / "rules" / f"{name}.yml").read_text("utf-8")
        (folder / f"{name}.yml").write_text(quickened(text))
    costs = folder / "costs.yaml"
    costs.write_text(COSTS)
    speculations = {k: servers.drafter(DRAFTER, k) for k in (LESS, MORE)}
    slow = {"SPECDEC_POSITION_SECONDS": str(POSITION_SECONDS)}
    server = servers.new("target", speculations[MORE], environment=slow)
    drafter = {**speculations[MORE]}
    del drafter["num_speculative_tokens"]  # the server shows which it is
    flags = (
        f"--vllm.url={server.url}",
        f"--spec.config={json.dumps(drafter)}",
        f"--cost.file={costs}",
        "--cost.profile=free",
        "--poll.interval=250ms",
        "--poll.timeout=240ms",
        "--window=10s",
        "--threshold=advice_minimum_drafts=30",
        "--threshold=minimum_drafts=30",
    )
    exporter = running_exporter(
        *flags, fast=False, command=(sys.executable, "-c", COMMAND)
    )
    watched = []
    with server, exporter as running:
        jobs = {"exporter": running.address, "vllm": server.url.removeprefix("http://")}
        with PrometheusServer(
            jobs,
            interval="250ms",
            config={"rule_files": [f"{folder}/*.yml"]},
            flags=(f"--query.lookback-delta={300 / SPEED:g}s",),
        ) as prometheus:
            for k in (MORE, LESS, MORE):
                if watched:
                    server.restart(speculations[k])
                watched.append(live(server, LIFE, running, prometheus))
    return watched


def test_without_another_k_the_model_decides(lives: list[Seen]) -> None:
    """By the cost profile alone the larger K is faster."""
    first = lives[0]
    assert first.tried == []
    assert first.since_then == {}
    assert first.gain(MORE, over=LESS) > 1
    assert first.advice["num_speculative_tokens"] >= MORE


def test_advice_and_board_agree_in_both_directions(lives: list[Seen]) -> None:
    """Whatever runs, the smaller K is faster and is advised, or will be once that is
    certain, and the board never says the opposite (0: neither): on a machine whose
    speed changes it may not be certain after one life.
    """
    _, less, more = lives
    assert less.since_then in ({MORE: 2.0}, {MORE: 0.0})
    assert more.since_then[LESS] in (-2.0, 0.0)
    for life, tried_k in ((less, MORE), (more, LESS)):
        assert life.tried == [tried_k]
        is_advised = life.advice["num_speculative_tokens"] == LESS
        will_be = f"lately K={LESS} seems better" in life.advice["reason"]
        assert is_advised or will_be, life.advice["reason"]
        assert f"K={tried_k} really ran at this load" in life.advice["reason"]
        assert f"K={tried_k} really ran at this load" in life.page


def test_both_measure_the_same_gain(lives: list[Seen]) -> None:
    """Of the same traffic, though not over the same minutes."""
    for life in lives[1:]:
        by_board = life.times[MORE] / life.times[LESS]
        assert life.gain(LESS, over=MORE) == pytest.approx(by_board, rel=0.2)
