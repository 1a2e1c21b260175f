"""The pipeline: from readings to results, poll by poll."""

from collections.abc import Iterable

import pytest

from support.builders import OPENMETRICS, counters, process_reading, processed, upstream
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.profiles import BUILTIN, CostSettings
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Load,
    Reading,
    Steps,
)
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.measures.measures import Distribution
from vllm_specdec_exporter.observe.pipeline import interrupt
from vllm_specdec_exporter.observe.result import Deployment, EngineResult
from vllm_specdec_exporter.observe.settings import Settings

KEY = EngineKey("m", "0")

#: Settings under which a handful of drafts can be judged.
EASY = Settings(
    windows=(Window(10), Window(60)),
    judged=Window(60),
    thresholds=Thresholds(minimum_drafts=10, healthy_position_0_acceptance_ratio=0.85),
)


def reading(
    values: Counters,
    load: Load = Load(1, 0, 0.5),  # noqa: B008 - it is frozen
    **more: Steps,
) -> Reading:
    return Reading("vllm-v1", (EngineReading(KEY, values, load, **more),))


def run(
    readings: Iterable[Reading], settings: Settings = EASY, interval: float = 5.0
) -> list[EngineResult]:
    """The results for the first engine, polled every `interval` seconds."""
    timed = ((poll * interval, item) for poll, item in enumerate(readings))
    return [of_engines[0] for of_engines in processed(timed, settings)]


def steady(polls: int, start: int = 0) -> list[Reading]:
    """An engine that makes 20 drafts a poll, of 2 tokens each; 18 and then 15 are
    accepted.
    """
    return [
        reading(counters(20 * i, [18 * i, 15 * i])) for i in range(start, start + polls)
    ]


class TestResult:
    def test_judgement(self) -> None:
        """The judged window decides; others show steadiness once they hold other
        samples.

        A window that is 90 % full is called by its name.
        """
        result = run(steady(14))[-1]

        assert [(m.window, m.span_seconds, m.drafts) for m in result.windows] == [
            ("10s", 10.0, 40.0),
            ("1m", 60.0, 240.0),
        ]
        assert result.window("5m") is None
        assert result.activity.state is ActivityState.ACTIVE
        assert values_of(result.activity.reason) == {"drafts": 240, "window": "1m"}
        of_10_seconds = run(steady(14), replace(EASY, judged=Window(10)))[-1]
        assert of_10_seconds.judged_window == "10s"
        assert values_of(of_10_seconds.activity.reason) == {
            "drafts": 40,
            "window": "10s",
        }
        assert result.quality.level is QualityLevel.OPTIMAL
        assert [name_of(finding.text) for finding in result.findings] == [
            "finding.undecided.text",
            "finding.costs_assumed.text",
        ]
        steady_length = values_of(result.quality.reasons[-1])
        assert steady_length["measure"] == "mean acceptance length deviation"
        assert steady_length["value"] == "0.00"

        soon = run(steady(3))[-1]
        assert [m.span_seconds for m in soon.windows] == [10.0, 10.0]
        for polls, period in ((3, "10s"), (11, "50s"), (12, "1m")):
            reason = run(steady(polls))[-1].activity.reason
            assert values_of(reason)["window"] == period, polls
        measures = [values_of(reason)["measure"] for reason in soon.quality.reasons]
        assert "mean acceptance length deviation" not in measures

    def test_traffic_that_has_ended_is_neither_judged_nor_advised_on(self) -> None:
        """As soon as the shortest window is empty, although the judged one still holds
        enough drafts.
        """
        ended = reading(counters(20 * 13, [18 * 13, 15 * 13]), Load(0, 0, 0.0))
        active, *_, resting = run([*steady(14), *[ended] * 3])[13:]
        assert active.activity.state is ActivityState.ACTIVE
        assert active.quality.level is QualityLevel.OPTIMAL
        assert active.payoff.verdict is not None
        assert resting.windows[1].drafts == 180
        assert resting.activity == Activity(
            ActivityState.IDLE, "nothing was generated in the last 10s"
        )
        assert resting.payoff.verdict is None
        assert resting.payoff.speedup is None
        assert resting.quality.level is None

    def test_what_the_operator_says(self) -> None:
        """The speculative config names the deployment, and gives K before positions.

        Without a method, it is that of the drafter's name, as in vLLM.
        """
        settings = replace(
            EASY,
            speculation=Speculation(True, "", "some/EAGLE3-draft", 3),
            costs=CostSettings(BUILTIN["eagle3"]),
        )
        states, (result,) = process_reading(
            {}, reading(counters(0)), 0, settings, upstream_version="0.32.0"
        )

        assert result.deployment == Deployment(
            "eagle3",
            "some/EAGLE3-draft",
            dialect="vllm-v1",
            upstream_version="0.32.0",
            cost_profile="eagle3",
        )
        assert result.num_speculative_tokens == 3
        assert list(states) == [KEY]

    def test_what_the_server_counts_beats_the_k_of_the_operator(self) -> None:
        seven = Speculation(True, num_speculative_tokens=7)
        (contradicted,) = run(steady(1, 1), replace(EASY, speculation=seven))
        assert contradicted.num_speculative_tokens == 2
        difference = "the server counts 2 positions, but --spec.config says K=7"
        assert difference in [finding.text for finding in contradicted.findings]


class TestOverTime:
    def test_an_interruption(self) -> None:
        """After the server stopped listening windows begin anew, without a reset."""
        states, _ = process_reading({}, steady(1)[0], 0, EASY)
        states, _ = process_reading(states, steady(2)[1], 5, EASY)
        states, (first,) = process_reading(interrupt(states), steady(3)[2], 60, EASY)
        _, (second,) = process_reading(states, steady(4)[3], 65, EASY)

        assert (first.windows, first.engine_resets_total) == ((), 0)
        assert [m.drafts for m in second.windows] == [20.0, 20.0]

    def test_a_hidden_restart_gives_itself_away(self) -> None:
        """A process that counted past all old values unseen has fewer drafts of few
        accepted tokens.

        Behind a closed port may be another life, whose counters contradict nothing of
        the old one's.
        """
        states, _ = process_reading({}, reading(counters(100, [10, 0, 0])), 0, EASY)
        _, (result,) = process_reading(
            interrupt(states), reading(counters(200, [180, 100, 40])), 10, EASY
        )

        assert result.accepted_tokens_per_draft.buckets == (20, 100, 160, 200)
        assert (result.windows, result.engine_resets_total) == ((), 1)
        assert (result.defects, result.inconsistent_samples_total) == ((), 0)

    def test_a_clock_that_does_not_advance(self) -> None:
        """An answer that is not later than the last is counted as inconsistent, and
        begins anew.
        """
        states, _ = process_reading({}, steady(1)[0], 5, EASY)
        _, (result,) = process_reading(states, steady(2)[1], 5, EASY)

        assert result.defects == ("the clock did not advance since the sample before",)
        counts = (
            result.windows,
            result.engine_resets_total,
            result.inconsistent_samples_total,
        )
        assert counts == ((), 0, 1)

    def test_engines_that_come_and_go(self) -> None:
        """An engine that is gone is forgotten; one that is new begins; the others go
        on.
        """
        second = EngineKey("m", "1")
        earlier, two = steady(2)
        both = replace(
            earlier, engines=(*earlier.engines, replace(earlier.engines[0], key=second))
        )

        states, _ = process_reading({}, both, 0, EASY)
        states, results = process_reading(states, two, 5, EASY)
        assert list(states) == [KEY]
        assert [len(result.windows) for result in results] == [2]

        states, results = process_reading(states, both, 10, EASY)
        assert [KEY, second] == [result.key for result in results]
        assert results[1].windows == ()


@pytest.mark.parametrize("configured", [True, False])
def test_counters_of_speculation_that_vanish(configured: bool) -> None:
    """Only a speculative config tells a server that lost them from one that does not
    speculate.
    """
    settings = replace(EASY, speculation=Speculation(configured))
    later = [reading(Counters(generation_tokens=1000 + 100 * i)) for i in range(20)]
    result = run([*steady(5), *later], settings)[-1]

    assert result.activity.state is (
        ActivityState.BYPASSED if configured else ActivityState.OFF
    )
    assert result.counters.drafts is None


class TestBuckets:
    """Prometheus takes any fall of a bucket for a restart, so none falls unless
    counters reset.
    """

    BEFORE = counters(100, [80, 50])
    TORN = counters(100, [82, 51])
    WHOLE = counters(110, [88, 55])

    @pytest.mark.parametrize(
        ("seconds", "interrupted"),
        [(5.0, False), (500.0, False), (-100.0, False), (150.0, True)],
    )
    def test_they_are_held(self, seconds: float, interrupted: bool) -> None:
        """Over failed polls, long silences, clocks that jump, and a port that was
        closed for a while.
        """
        states, (start,) = process_reading({}, reading(self.BEFORE), 0, EASY)
        states = interrupt(states) if interrupted else states
        states, (torn,) = process_reading(states, reading(self.TORN), seconds, EASY)
        _, (complete,) = process_reading(states, reading(self.WHOLE), seconds + 5, EASY)

        assert [r.accepted_tokens_per_draft for r in (start, torn, complete)] == [
            Distribution((20, 50, 100), 100, 130),
            Distribution((20, 50, 100), 100, 133),
            Distribution((22, 55, 110), 110, 143),
        ]
        assert complete.engine_resets_total == 0

    def test_through_an_answer_without_them(self) -> None:
        """Where the sum is missing from an answer that had none before either, the last
        buckets stand.
        """
        unsummed = replace(self.BEFORE, accepted_tokens=None)
        results = run(reading(values) for values in (unsummed, self.BEFORE, self.TORN))

        assert [r.accepted_tokens_per_draft for r in results] == [
            None,
            Distribution((20, 50, 100), 100, 130),
            Distribution((20, 50, 100), 100, 133),
        ]

    @pytest.mark.parametrize("interrupted", [False, True])
    def test_they_begin_anew_with_the_counters(self, interrupted: bool) -> None:
        """What was counted before a restart has no part in what is counted now."""
        states, _ = process_reading({}, reading(self.BEFORE), 0, EASY)
        states = interrupt(states) if interrupted else states
        _, (result,) = process_reading(states, reading(counters(60, [50, 40])), 5, EASY)
        assert result.accepted_tokens_per_draft == Distribution((10, 20, 60), 60, 90)
        assert result.engine_resets_total == 1


IDLE = ActivityState.IDLE
OFF = ActivityState.OFF
LLAMACPP = upstream("llamacpp-k4.txt")
#: llama.cpp counts when a request ends: without one in progress it is idle.
LLAMACPP_IDLE = LLAMACPP.replace(b"processing 1\n", b"processing 0\n")
RUST_NOSPEC = upstream("vllm-rust-nospec.openmetrics.txt")


class TestServers:
    """What becomes of each kind of server, over two answers."""

    @pytest.mark.parametrize(
        ("item", "state", "k"),
        [
            pytest.param(read(RUST_NOSPEC, OPENMETRICS), OFF, None, id="Rust"),
            pytest.param(read(upstream("lmdeploy-k3.txt")), IDLE, 3, id="LMDeploy"),
            pytest.param(
                read(upstream("lmdeploy-nospec.txt")), OFF, None, id="LMDeploy off"
            ),
            pytest.param(
                read(upstream("llamacpp-nospec.txt")), OFF, None, id="llama.cpp off"
            ),
            pytest.param(read(upstream("vllm-v0-k5.txt")), IDLE, None, id="V0"),
            # vLLM counts as it goes, so counters that stand still are idleness,
            # whatever is running.
            pytest.param(reading(counters(20, [18])), IDLE, 1, id="vLLM"),
            pytest.param(read(LLAMACPP_IDLE), IDLE, 4, id="llama.cpp"),
            pytest.param(
                read(LLAMACPP), ActivityState.WARMING_UP, 4, id="a long request"
            ),
        ],
    )
    def test_counters_that_stand_still(
        self, item: Reading, state: ActivityState, k: int | None
    ) -> None:
        """Speculation that rests is idle, none at all is off."""
        result = run([item, item])[-1]
        assert (result.activity.state, result.num_speculative_tokens) == (state, k)

    def test_drafts_that_are_counted_in_part(self) -> None:
        """LMDeploy counts all tokens, and under load a part of the drafts that they
        came from: no share of the tokens follows.
        """
        before = upstream("lmdeploy-k3.txt")
        after = before
        for counted, later in (
            (b"6231.0", b"9231.0"),
            (b" 2132.0", b" 2232.0"),
            (b" 6396.0", b" 6696.0"),
            (b" 4075.0", b" 4275.0"),
            (b" 1671.0", b" 1751.0"),
            (b" 1324.0", b" 1394.0"),
            (b" 1080.0", b" 1130.0"),
        ):
            after = after.replace(counted, later)
        result = run([read(before), read(after)])[-1]
        assert result.activity.state is ActivityState.ACTIVE
        (judged, *_) = result.windows
        assert judged.mean_acceptance_length == 3.0
        assert judged.coverage_ratio is None
        texts = [name_of(finding.text) for finding in result.findings]
        assert "finding.low_coverage.text" not in texts

    @pytest.mark.parametrize(
        ("speculation", "prefix"),
        [
            (Speculation(), b"vllm:"),
            (Speculation(True, "ngram", "", 4), b"vllm:"),
            (Speculation(), b"aphrodite:"),  # a fork of vLLM
        ],
    )
    def test_a_diffusion_model(self, speculation: Speculation, prefix: bytes) -> None:
        """Denoising steps are not drafts, as the reason says; no speculative config
        makes it speculative.
        """
        item = read(upstream("vllm-diffusion.txt").replace(b"vllm:", prefix))
        result = run([item, item], replace(EASY, speculation=speculation))[-1]
        assert result.activity.state is OFF
        assert name_of(result.activity.reason) == "activity.diffusion"
        assert result.num_speculative_tokens is None
        assert result.accepted_tokens_per_draft is None
