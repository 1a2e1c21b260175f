"""The pipeline: from readings to results, poll by poll."""

from collections.abc import Iterable

import pytest

from support.builders import OPENMETRICS, counters, processed, upstream
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
from vllm_specdec_exporter.observe.pipeline import interrupt, process_reading
from vllm_specdec_exporter.observe.result import Deployment, EngineResult
from vllm_specdec_exporter.observe.settings import Settings

KEY = EngineKey("m", "0")

#: Settings under which a handful of drafts can be judged.
EASY = Settings(
    windows=(Window(10), Window(60)),
    judged=Window(60),
    thresholds=Thresholds(minimum_drafts=10, healthy_position_0_acceptance_ratio=0.85),
)


def reading(values: Counters) -> Reading:
    return Reading("vllm-v1", (EngineReading(KEY, values, Load(1, 0, 0.5)),))


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
            "finding.likely_beneficial.text",
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
        ended = reading(counters(20 * 13, [18 * 13, 15 * 13]))
        ended = replace(
            ended, engines=(replace(ended.engines[0], load=Load(0, 0, 0.0)),)
        )
        active, *_, ended_long_ago = run([*steady(14), *[ended] * 3])[13:]
        assert (active.activity.state, active.quality.level) == (
            ActivityState.ACTIVE,
            QualityLevel.OPTIMAL,
        )
        assert active.payoff.verdict is not None
        assert ended_long_ago.windows[1].drafts == 180
        assert (
            Activity(ActivityState.IDLE, "nothing was generated in the last 10s")
            == ended_long_ago.activity
        )
        assert (
            ended_long_ago.payoff.verdict,
            ended_long_ago.payoff.speedup,
            ended_long_ago.quality.level,
        ) == (
            None,
            None,
            None,
        )

    def test_what_the_operator_says(self) -> None:
        """The speculative config names the deployment, and gives K before positions."""
        settings = replace(
            EASY,
            speculation=Speculation(True, "eagle3", "some/draft", 3),
            costs=CostSettings(BUILTIN["eagle3"]),
        )
        states, (result,) = process_reading(
            {},
            reading(
                Counters(
                    0,
                    0,
                    accepted_tokens=0,
                    accepted_tokens_per_position=(),
                    generation_tokens=0,
                )
            ),
            time=0,
            settings=settings,
            upstream_version="0.32.0",
        )

        assert (
            Deployment(
                "eagle3",
                "some/draft",
                dialect="vllm-v1",
                upstream_version="0.32.0",
                cost_profile="eagle3",
            )
            == result.deployment
        )
        assert result.num_speculative_tokens == 3
        assert list(states) == [KEY]
        (contradicted,) = run(
            steady(1, 1),
            replace(EASY, speculation=Speculation(True, num_speculative_tokens=7)),
        )
        assert (
            contradicted.num_speculative_tokens == 2
        )  # what the server counts beats it
        difference = "the server counts 2 positions, but --spec.config says K=7"
        assert difference in [finding.text for finding in contradicted.findings]

    @pytest.mark.parametrize(
        ("draft_model", "method"),
        [("yuhuili/EAGLE3-LLaMA3.1-8B", "eagle3"), ("ngram", "ngram"), ("some", "")],
    )
    def test_the_published_method_is_the_judged_one(
        self, draft_model: str, method: str
    ) -> None:
        """Without a method, vLLM derives it from the drafter's name."""
        settings = replace(EASY, speculation=Speculation(True, "", draft_model, 2))
        result = run(steady(1, 1), settings)[-1]
        assert result.deployment.method == method

    @pytest.mark.parametrize(
        ("tokens", "state"), [(1, ActivityState.IDLE), (30, ActivityState.BYPASSED)]
    )
    def test_a_prefill_node_has_nothing_to_draft(
        self, tokens: int, state: ActivityState
    ) -> None:
        """Each request of a disaggregated pair's prefill ends with its first token."""

        def polled(requests: int) -> Reading:
            values = replace(
                counters(0, [0, 0]), generation_tokens=float(tokens * requests)
            )
            engine = EngineReading(
                KEY, values, Load(1, 0, 0.5), steps=Steps(requests=float(requests))
            )
            return Reading("vllm-v1", (engine,))

        assert (
            run([polled(20 * poll) for poll in range(14)])[-1].activity.state is state
        )


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
        assert (list(states), [len(result.windows) for result in results]) == (
            [KEY],
            [2],
        )

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

    def test_they_begin_anew_with_the_counters(self) -> None:
        """What was counted before a restart has no part in what is counted now."""
        states, _ = process_reading({}, reading(self.BEFORE), 0, EASY)
        for previous in (states, interrupt(states)):
            _, (result,) = process_reading(
                previous, reading(counters(60, [50, 40])), 5, EASY
            )
            assert result.accepted_tokens_per_draft == Distribution(
                (10, 20, 60), 60, 90
            ), previous
            assert result.engine_resets_total == 1, previous


class TestServers:
    """What becomes of each kind of server, over two answers."""

    def test_counters_that_stand_still(self) -> None:
        """Speculation that rests is idle, none at all is off."""
        idle = ActivityState.IDLE
        off = ActivityState.OFF
        for item, activity, k in (
            (
                read(upstream("vllm-rust-nospec.openmetrics.txt"), OPENMETRICS),
                off,
                None,
            ),
            (read(upstream("lmdeploy-k3.txt")), idle, 3),
            (read(upstream("lmdeploy-nospec.txt")), off, None),
            (read(upstream("llamacpp-nospec.txt")), off, None),
            (read(upstream("vllm-v0-k5.txt")), idle, None),
            # VLLM counts as it goes, so counters that stand still are idleness,
            # whatever is running.
            (reading(counters(20, [18])), idle, 1),
            # llama.cpp counts when a request ends: without one in progress it is idle.
            (
                read(
                    upstream("llamacpp-k4.txt").replace(
                        b"processing 1\n", b"processing 0\n"
                    )
                ),
                idle,
                4,
            ),
        ):
            result = run([item, item])[-1]
            assert (result.activity.state, result.num_speculative_tokens) == (
                activity,
                k,
            ), item.dialect
        item = read(upstream("llamacpp-k4.txt"))
        assert run([item, item])[-1].activity.state is ActivityState.WARMING_UP, (
            "a long request"
        )

    def test_a_diffusion_model(self) -> None:
        """Denoising steps are not drafts, as the reason says; no speculative config
        makes it speculative.
        """
        text = upstream("vllm-diffusion.txt")
        for speculation, answer in (
            (Speculation(), text),
            (Speculation(True, "ngram", "", 4), text),
            (Speculation(), text.replace(b"vllm:", b"aphrodite:")),  # a fork of vLLM
        ):
            item = read(answer)
            result = run([item, item], replace(EASY, speculation=speculation))[-1]
            assert result.activity.state is ActivityState.OFF, (
                speculation,
                item.dialect,
            )
            assert name_of(result.activity.reason) == "activity.diffusion", (
                speculation,
                item.dialect,
            )
            assert (
                result.num_speculative_tokens,
                result.accepted_tokens_per_draft,
            ) == (None, None), (speculation, item.dialect)
