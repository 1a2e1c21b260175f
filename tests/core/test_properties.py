"""What holds from the text of an answer to the result, whatever the engine did."""

from itertools import pairwise

from hypothesis import given

from support.builders import lives, processed, torn_lives
from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.engines.reading import (
    Counters,
    EngineKey,
    EngineReading,
    Reading,
)
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.observe.settings import Settings

#: Lives of a few polls have few drafts, and are to be judged all the same.
SETTINGS = Settings(
    windows=(Window(12), Window(60)),
    judged=Window(60),
    thresholds=Thresholds(minimum_drafts=5),
)


def run(life: list[Counters]) -> list[EngineResult]:
    """The results of one engine, polled every 5 seconds."""
    readings = []
    for poll, values in enumerate(life):
        engine = EngineReading(EngineKey("m", "0"), values)
        readings.append((5.0 * poll, Reading("vllm-v1", (engine,))))
    return [result for (result,) in processed(readings, SETTINGS)]


class TestTime:
    @given(lives(3), lives(3))
    def test_what_was_before_a_restart(
        self, first_life: list[Counters], second_life: list[Counters]
    ) -> None:
        """Nothing derived after a restart depends on what was before it; whole answers
        show no defect.
        """
        moved = [replace(values, created=1.0) for values in first_life]
        anew = [replace(values, created=2.0) for values in second_life]
        results = run([*moved, *anew])[len(first_life) :]

        assert [1] * len(second_life) == [
            result.engine_resets_total for result in results
        ]
        assert run(anew) == [
            replace(result, engine_resets_total=0) for result in results
        ]
        assert {result.defects for result in results} == {()}

    @given(torn_lives())
    def test_torn_answers_do_no_harm(self, life: list[Counters]) -> None:
        """However torn the answers: counters as the server gave them, and buckets that
        never fall.
        """
        results = run(life)
        distributions = [
            r.accepted_tokens_per_draft for r in results if r.accepted_tokens_per_draft
        ]
        published = [(*each.buckets, each.count, each.sum) for each in distributions]

        assert life == [result.counters for result in results]
        for distribution in distributions:
            buckets = list(distribution.buckets)
            assert sorted(buckets) == buckets, distribution
        for result in results:
            assert result.activity.state in ActivityState, result
            if result.quality.level:
                assert result.activity.state is ActivityState.ACTIVE, result
        for previous, current in pairwise(published):
            rises = [b >= a for a, b in zip(previous, current, strict=True)]
            assert all(rises), (previous, current)
