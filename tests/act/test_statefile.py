"""The state file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.commands.act.decision import DecisionKey
from vllm_specdec_exporter.commands.act.history import (
    ActionHistory,
    CommandState,
    DecisionRecord,
    State,
    StateError,
    decode_state,
    encode_state,
    load_state,
)

if TYPE_CHECKING:
    from pathlib import Path

MOMENTS = st.floats(min_value=0, max_value=4e9)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
HISTORIES = st.builds(
    ActionHistory,
    st.dictionaries(
        st.builds(DecisionKey, *[WORDS] * 6),
        st.builds(DecisionRecord, st.sampled_from(CommandState), st.integers(0, 9), MOMENTS, MOMENTS),
        max_size=5,
    ),
    st.lists(MOMENTS, max_size=5).map(lambda times: tuple(sorted(times))),
)


@given(st.builds(State, HISTORIES, HISTORIES))
def test_what_is_written_is_read(state: State) -> None:
    """Whatever the names."""
    assert decode_state(encode_state(state)) == state


GOOD = encode_state(
    State(ActionHistory({DecisionKey(*"abcdef"): DecisionRecord(CommandState.DONE, 0, 5.0, 5.0)}, (5.0,)))
).decode()


REFUSED = [
    ("", "not a state file of act"),
    (GOOD[:-20], "not a state file of act"),
    ("[" * 100_000, "not a state file of act"),
    ("[]", "not a state file of act"),
    ('{"format": "vllm-specdec-act/9"}', "its format is 'vllm-specdec-act/9', and vllm-specdec-act/1"),
    (GOOD.replace('"done"', '"perhaps"'), "Invalid enum value"),
    (GOOD.replace('"seen": 5.0', '"seen": -1'), "Expected `float` >= 0"),
    (GOOD.replace('"seen": 5.0', '"seen": 1e999'), "not a state file of act"),
    (GOOD.replace('"failures": 0', '"failures": -1'), "Expected `int` >= 0"),
    (GOOD.replace('"failures": 0', '"failures": 0, "more": 0'), "unknown field"),
]


def test_anything_else_is_refused_in_one_line(tmp_path: Path) -> None:
    """A file in doubt is not overwritten: it may be all that keeps an action from being done twice.

    One that does not exist is empty: the first start is no error.
    """
    file = tmp_path / "state.json"
    assert load_state(file) == State()
    for body, why in REFUSED:
        file.write_text(body)
        with pytest.raises(StateError) as caught:
            load_state(file)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(StateError, match="cannot be read: Is a directory"):
        load_state(tmp_path)
