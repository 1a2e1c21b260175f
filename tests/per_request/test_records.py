"""The record in an answer: what is read of it, and which contradictions are not
believed.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from per_request.exact import Step, steps
from per_request.traffic import record_of
from support.builders import refusal, upstream
from vllm_specdec_exporter.commands.requests.recorded import EntryReader
from vllm_specdec_exporter.per_request.exchange import Exchange
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation, RecordState
from vllm_specdec_exporter.per_request.openai_api import read_response
from vllm_specdec_exporter.per_request.push_schema import read_push
from vllm_specdec_exporter.per_request.recent_window import GroupStats
from vllm_specdec_exporter.per_request.records import (
    DraftRecord,
    RecordError,
    parse_record,
    read_record,
)
from vllm_specdec_exporter.per_request.summary import Outcome

STEPS: list[Step] = [(4, 4), (4, 1), (2, 0), (0, 0)]
#: As vLLM writes it, with `detailed`: the last step's drafted tokens were all struck
#: out by a grammar.
DETAILED: dict[str, Any] = {
    "mean_acceptance_length": 2.25,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [2, 1, 0, 0, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 5,
    "num_draft_tokens": 10,
    "num_spec_tokens": 4,
    "per_step_accepted": [4, 1, 0, 0],
    "per_step_drafted": [4, 4, 2, 0],
}
SUMMARY = {
    name: value for name, value in DETAILED.items() if not name.startswith("per_step")
}


class TestReading:
    def test_detailed(self) -> None:
        """Totals, the distribution and every step; steps that are alike are counted."""
        draft_record = parse_record({**DETAILED})

        steps = dict(Counter(STEPS))
        assert draft_record == DraftRecord(
            4, 10, 5, histogram=(2, 1, 0, 0, 1), steps=steps
        )
        assert draft_record.acceptance_ratio == 0.5
        assert draft_record.accepted_per_draft == 1.25

    def test_summary(self) -> None:
        """The same without the steps; ``null`` and an empty list are what such a server
        may write.
        """
        assert parse_record(SUMMARY) == DraftRecord(4, 10, 5, (2, 1, 0, 0, 1))
        for nothing in (None, []):
            document = {
                **SUMMARY,
                "per_step_accepted": nothing,
                "per_step_drafted": nothing,
            }
            assert parse_record(document) == parse_record(SUMMARY), nothing
            assert parse_record(
                {**SUMMARY, "acceptance_histogram": nothing}
            ) == DraftRecord(4, 10, 5), nothing

    def test_a_summary_of_whole_drafts_has_every_step(self) -> None:
        """If all drafts had K tokens, the distribution tells what the steps would; K
        may be left out.
        """
        steps = [(3, 0)] * 4 + [(3, 1)] * 3 + [(3, 2)] * 3 + [(3, 3)] * 4
        detailed = record_of(steps) | {"acceptance_histogram": [4, 3, 3, 4]}
        summary = {
            name: value
            for name, value in detailed.items()
            if not name.startswith("per_step")
        }
        for k in (3, None):
            assert parse_record({**summary, "num_spec_tokens": k}) == parse_record(
                detailed
            ), k
        deeper = {**summary, "num_spec_tokens": 4}
        assert parse_record(deeper).steps == {}
        assert (
            Observation(0.0, record=parse_record(deeper)).state is RecordState.SUMMARY
        )

    def test_nothing_drafted(self) -> None:
        """A grammar may strike out all drafted tokens of all steps."""
        record = parse_record(record_of([(0, 0), (0, 0)]))
        assert record.drafts == 2
        assert Observation(0.0, record=record).state is RecordState.NOT_DRAFTED

    def test_more_steps_than_are_read(self) -> None:
        """Traffic would wait for them: such an answer has its totals, as with a
        summary.
        """
        limit = 65_536
        for count in (limit, limit + 1):
            steps = {"per_step_drafted": [3] * count, "per_step_accepted": [1] * count}
            totals = {"num_spec_steps": count, "num_draft_tokens": 3 * count}
            draft_record = parse_record(
                {**totals, "num_accepted_draft_tokens": count, **steps}
            )

            assert (draft_record.drafts, draft_record.accepted_tokens) == (
                count,
                count,
            ), count
            assert draft_record.steps == ({(3, 1): limit} if count == limit else {}), (
                count
            )


TABLES: Any = yaml.safe_load(Path(__file__).with_name("engines.yml").read_text("utf-8"))
#: vLLM's own record goes before what a gateway made of it.
OF_VLLM = {
    "choices": [],
    "metrics": {"speculative_decoding": DETAILED},
    "usage": {"completion_tokens": 9, "completion_tokens_details": TABLES["usage"]},
}


def of_row(
    drafts: int, drafted: int, accepted: int, histogram: Any = (), steps: Any = ()
) -> DraftRecord:
    counts = {(d, a): count for d, a, count in steps}
    return DraftRecord(
        drafts, drafted, accepted, histogram=tuple(histogram), steps=counts
    )


class TestOtherEngines:
    """One form for the records of all engines, which tap, push and files share."""

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            *((document, of_row(*row)) for document, row in TABLES["forms"]),
            (DETAILED, parse_record(DETAILED)),
        ],
    )
    def test_each_is_read_into_the_one_form(
        self, document: dict[str, Any], expected: DraftRecord
    ) -> None:
        record = read_record(document)
        assert replace(record, configured_k=False) == expected
        body = json.dumps(
            {"requests": [{"model": "m", "speculative_decoding": document}]}
        ).encode()
        (observation,) = read_push(body, 0.0).observations
        assert observation.record == record

    @pytest.mark.parametrize("document", TABLES["refused"])
    def test_one_that_contradicts_itself_is_refused(
        self, document: dict[str, Any]
    ) -> None:
        assert refusal(RecordError, read_record, document)

    @pytest.mark.parametrize(
        ("response", "state", "tokens"),
        [
            *TABLES["responses"],
            (json.loads(upstream("llamacpp-completion.json")), "summary", 1012),
            (OF_VLLM, "detailed", 9),
        ],
    )
    def test_it_is_found_in_a_response_whole_streamed_and_recorded(
        self, response: dict[str, Any], state: str, tokens: int | None
    ) -> None:
        text = json.dumps(response).encode()
        read = read_response(text)
        recorded = EntryReader(Classification()).read(text)
        exchange = Exchange("/v1/chat/completions", {}, Classification())
        exchange.request_data(b"{}")
        exchange.request_end(0.0)
        exchange.response_head(200, {"content-type": "text/event-stream"})
        exchange.response_data(
            b'data: {"model": "m", "choices": [{"delta": {"content": "x"}}]}\n\n', 1.0
        )
        exchange.response_data(b"data: " + text + b"\n\ndata: [DONE]\n\n", 2.0)
        streamed = exchange.finish(0.0)
        direct = Observation(0.0, record=read.record, malformed=read.malformed)

        assert (direct.state, read.completion_tokens) == (RecordState(state), tokens)
        assert (streamed.state, recorded.state) == (direct.state, direct.state)

    def test_without_a_number_of_drafts_there_is_an_acceptance_ratio_and_no_length(
        self,
    ) -> None:
        """Mixed with records that have one, the length would be too large."""
        with_drafts = read_record(TABLES["sglang"])
        without = read_record(TABLES["timings"])
        group = GroupStats()
        group.add(with_drafts, Outcome.GAINS, 11)
        assert group.counted_drafts == 4
        group.add(without, Outcome.GAINS, 1012)
        assert (group.counted_drafts, group.acceptance_ratio) == (0, 748 / 1088)


def test_a_push_tells_all_that_is_known_of_a_request() -> None:
    pushed = {
        "model": "m",
        "temperature": 0.7,
        "request_type": "code",
        "tenant": "a",
        "stream": True,
    }
    pushed |= {
        "completion_tokens": 7,
        "time_to_first_token_seconds": 0.2,
        "time_per_output_token_seconds": 0.1,
    }
    (observation,) = read_push(
        json.dumps({"requests": [pushed]}).encode(), 5.0
    ).observations
    expected = Observation(
        5.0,
        model_name="m",
        temperature=0.7,
        request_type="code",
        tenant="a",
        stream=True,
        completion_tokens=7,
    )
    assert observation == replace(expected, ttft_seconds=0.2, tpot_seconds=0.1)


COUNTS = "num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"
LISTS = "acceptance_histogram", "per_step_drafted", "per_step_accepted"


class TestRefusing:
    def test_no_object_and_no_counts(self) -> None:
        """A record is an object, its totals are whole numbers that a float can hold,
        its lists hold such.

        No list is longer than any context window.
        """
        no_counts = (None, -1, 1.0, "1", True, [], 2**53)
        no_lists = (
            5,
            "1",
            {},
            [1.0],
            [True],
            [None],
            [-1],
            ["1"],
            [[1]],
            [2**53],
            [0] * 1_000_001,
        )
        wrong = [(none, "the record is not an object") for none in (None, [], "x", 5)]
        for name in COUNTS:
            said = f"the record's {name} is not a count"
            wrong += [({**DETAILED, name: value}, said) for value in no_counts]
            wrong.append(
                ({key: value for key, value in DETAILED.items() if key != name}, said)
            )
        for name in LISTS:
            said = f"the record's {name} is not a list of counts"
            wrong += [({**DETAILED, name: value}, said) for value in no_lists]
        for document, said in wrong:
            assert refusal(RecordError, parse_record, document) == said, str(document)[
                :200
            ]

    def test_contradictions(self) -> None:
        """What contradicts itself is not counted by halves."""
        for message, several in TABLES["contradictions"].items():
            for each in several:
                assert (
                    refusal(RecordError, parse_record, {**DETAILED, **each}) == message
                ), (message, several, each)
        assert parse_record(record_of([(128, 0)])).draft_tokens == 128

    @given(steps(k=3, least=1, most=6), st.data())
    def test_a_count_that_is_off(self, found: list[Step], data: st.DataObject) -> None:
        """One number changed in a detailed record never goes unnoticed."""
        document = record_of(found)
        name = data.draw(
            st.sampled_from([*COUNTS, "per_step_drafted", "per_step_accepted"])
        )
        if isinstance(document[name], list):
            document[name][data.draw(st.integers(0, len(found) - 1))] += 1
        else:
            document[name] += 1

        with pytest.raises(RecordError):
            parse_record(document)


@pytest.mark.parametrize(
    ("completion_tokens", "delivered"),
    [(2, 0), (3, 1), (4, 2), (6, 4), (200, 4), (None, 4), (1, 0)],
)
def test_what_the_end_of_an_answer_cuts_off_was_accepted_and_not_delivered(
    completion_tokens: int | None, delivered: int
) -> None:
    """A real vLLM 0.32 with K=4 and an answer of 2 tokens: one draft, 4 accepted, and
    the second token is the first one that the draft gave.
    """
    drafted = DraftRecord(1, 4, 4)
    assert drafted.delivered_tokens(completion_tokens) == delivered
    stats = GroupStats()
    stats.add(drafted, Outcome.GAINS, completion_tokens or 0)
    assert stats.acceptance_ratio == 1.0
    assert stats.mean_acceptance_length == 1 + delivered
