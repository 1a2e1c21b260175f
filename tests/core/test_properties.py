"""What holds from the text of an answer to the result, whatever the engine did."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from support.builders import (
    OPENMETRICS,
    count,
    drafts_of,
    lines,
    lives,
    torn_lives,
    upstream,
    vllm_lines,
)
from support.copies import replace
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import Counters, EngineKey, EngineReading, Reading
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.measures.history import Window
from vllm_specdec_exporter.observe.pipeline import EngineState, Settings, process_reading
from vllm_specdec_exporter.observe.result import EngineResult

SETTINGS = Settings(
    windows=(Window(12), Window(60)), judged=Window(60), thresholds=Thresholds(minimum_drafts=5)
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
engines = st.dictionaries(
    st.builds(EngineKey, names, st.integers(0, 9).map(str)),
    drafts_of(3, most=10).map(lambda drafts: count(drafts, 3)),
    min_size=1,
    max_size=4,
)


def sample_lines(served: dict[EngineKey, Counters], prefix: str = "vllm:") -> list[str]:
    return [
        line
        for key, values in served.items()
        for line in vllm_lines(values, prefix=prefix, model_name=key.model_name, engine=key.engine)
    ]


def run(life: list[Counters]) -> list[EngineResult]:
    """The results of one engine, polled every 5 seconds."""
    states: dict[EngineKey, EngineState] = {}
    results = []
    for poll, values in enumerate(life):
        item = Reading("vllm-v1", (EngineReading(EngineKey("m", "0"), values),))
        states, (result,) = process_reading(states, item, 5.0 * poll, SETTINGS)
        results.append(result)
    return results


class TestText:
    @given(
        engines,
        st.randoms(use_true_random=False),
        st.sampled_from(["vllm:", "vllm_"]),
        st.booleans(),
        st.sampled_from(["\n", "\r\n"]),
    )
    def test_what_was_written_is_read(
        self, served: dict[EngineKey, Counters], random: Random, prefix: str, openmetrics: bool, end: str
    ) -> None:
        """Every counter of every engine comes out of the text as it went in, whatever the names.

        Lines in any order, classic text and OpenMetrics, either spelling, and either line end are read alike.
        """
        rows = sample_lines(served, prefix)
        random.shuffle(rows)
        reading = (
            read(lines(*rows, "# EOF", end=end), OPENMETRICS) if openmetrics else read(lines(*rows, end=end))
        )

        expected = {key: astuple(values) for key, values in served.items()}
        assert {engine.key: astuple(engine.counters) for engine in reading.engines} == expected
        assert reading == read(lines(*sample_lines(served)))

    @given(st.data())
    def test_a_text_that_is_cut_off(self, data: st.DataObject) -> None:
        """Wherever an OpenMetrics answer is cut off, it is refused."""
        text = upstream("vllm-rust-k3.openmetrics.txt")
        cut = data.draw(st.integers(0, len(text) - len("# EOF\n")))

        with pytest.raises(ValueError, match=r"truncated|ends within a line"):
            read(text[:cut], OPENMETRICS)


class TestTime:
    @given(lives(3), lives(3))
    def test_what_was_before_a_restart(self, before: list[Counters], after: list[Counters]) -> None:
        """Nothing derived after a restart depends on what was before it."""
        moved = [replace(values, created=1.0) for values in before]
        anew = [replace(values, created=2.0) for values in after]
        results = run([*moved, *anew])[len(before) :]

        assert [1] * len(after) == [result.engine_resets_total for result in results]
        assert run(anew) == [replace(result, engine_resets_total=0) for result in results]

    @given(torn_lives())
    def test_torn_answers_do_no_harm(self, life: list[Counters]) -> None:
        """However torn the answers, there is a result, one state, and counters as the server gave them.

        Within a life no bucket, count or sum of the published histogram falls.
        """
        results = run(life)
        found = [r.accepted_tokens_per_draft for r in results if r.accepted_tokens_per_draft]
        published = [(*each.buckets, each.count, each.sum) for each in found]

        assert life == [result.counters for result in results]
        assert [r for r in results if r.activity.state not in ActivityState] == []
        assert [r for r in results if r.quality.level and r.activity.state is not ActivityState.ACTIVE] == []
        falls = [(a, b) for before, after in pairwise(published) for a, b in zip(before, after, strict=True)]
        assert [(a, b) for a, b in falls if b < a] == []
