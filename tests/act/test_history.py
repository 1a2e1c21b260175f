"""The history's laws."""

from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vllm_specdec_exporter.commands.act.decision import DecisionKey
from vllm_specdec_exporter.commands.act.history import (
    FORGET_AFTER,
    HOUR,
    MAX_DECISIONS,
    MAX_FAILURES,
    ActionHistory,
    CommandState,
    DecisionRecord,
    Limits,
    State,
    StateError,
    decode_state,
    encode_state,
    load_state,
    moment,
)

DONE = CommandState.DONE
START = 1_770_000_000.0
KEYS = [
    DecisionKey("", "", model, action, k, starts_at)
    for model in ("a", "b", "c")
    for action, k in (("disable", "0"), ("increase_k", "5"))
    for starts_at in ("2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z")
]
KEY, OTHER, ELSEWHERE = KEYS[0], KEYS[2], KEYS[4]
FREE = Limits(per_model=0.0, per_hour=1000)


def done(history: ActionHistory, key: DecisionKey, now: float, *, succeeded: bool = True) -> ActionHistory:
    """The history after a command that took no time."""
    return history.begin(key, now).finish(key, succeeded=succeeded)


class HistoryRules(RuleBasedStateMachine):
    """A receiver's life: alerts come, commands end well, badly or not at all, the clock runs or goes back."""

    @initialize(
        per_model=st.sampled_from([0.0, 60.0, HOUR, 30 * HOUR]),
        per_hour=st.integers(min_value=1, max_value=6),
    )
    def begin(self, per_model: float, per_hour: int) -> None:
        self.limits = Limits(per_model, per_hour)
        self.history = ActionHistory()
        self.wall = START
        self.real = 0.0
        self.begun: list[tuple[float, DecisionKey]] = []
        self.succeeded: list[DecisionKey] = []
        self.failures: defaultdict[DecisionKey, int] = defaultdict(int)

    @rule(seconds=st.floats(min_value=0, max_value=3 * HOUR))
    def time_passes(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds

    @rule(seconds=st.floats(min_value=0, max_value=48 * HOUR))
    def the_clock_is_set_back(self, seconds: float) -> None:
        self.wall -= seconds

    @rule(key=st.sampled_from(KEYS), fate=st.sampled_from(["done", "failed", "cut short"]))
    def an_alert_comes(self, key: DecisionKey, fate: str) -> None:
        history = self.history.prune(self.wall).saw(key, self.wall).resume(key, self.wall)
        if history.reason_against(key, self.wall, self.limits):
            self.history = history
            return
        self.begun.append((self.real, key))
        self.history = history.begin(key, self.wall)
        if fate == "done":
            self.history = self.history.finish(key, succeeded=True)
            self.succeeded.append(key)
            self.failures[key] = 0
            return
        self.failures[key] += 1
        if fate == "failed":
            self.history = self.history.finish(key, succeeded=False)
        else:
            self.the_process_begins_anew()

    @rule()
    def the_process_begins_anew(self) -> None:
        found = decode_state(encode_state(State(acted=self.history)))
        self.history = found.acted.recover()

    @rule(key=st.sampled_from(KEYS))
    def an_alert_resolves(self, key: DecisionKey) -> None:
        self.history = self.history.resolve(key, self.wall)
        self.failures[key] = 0

    @invariant()
    def what_was_done_is_done_once(self) -> None:
        assert len(set(self.succeeded)) == len(self.succeeded)

    @invariant()
    def no_hour_has_more_than_its_limit(self) -> None:
        times = [time for time, _ in self.begun]
        for first, after in zip(times, times[self.limits.per_hour :], strict=False):
            assert after - first >= HOUR - 1e-6

    @invariant()
    def one_model_is_left_in_peace(self) -> None:
        for model in {key.model for _, key in self.begun}:
            mine = [(time, key) for time, key in self.begun if key.model == model]
            for (before, one), (after, another) in pairwise(mine):
                assert one == another or after - before >= self.limits.per_model - 1e-6

    @invariant()
    def what_keeps_failing_is_given_up(self) -> None:
        assert all(count <= MAX_FAILURES for count in self.failures.values())


TestHistoryRules = HistoryRules.TestCase


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.floats(min_value=0, max_value=HOUR)), max_size=12),
    st.sampled_from(KEYS),
)
def test_what_a_limit_holds_back_is_allowed_when_it_says(
    past: list[tuple[DecisionKey, float]], key: DecisionKey
) -> None:
    """The moment in the reason is the first whole second at which it may be done."""
    limits, history, now = Limits(per_model=600.0, per_hour=3), ActionHistory(), START
    for other, pause in past:
        now += pause
        history = history.prune(now)
        if not history.reason_against(other, now, limits):
            history = done(history, other, now)
    why = history.reason_against(key, now, limits)
    if "allowed again at" in why:
        told = datetime.fromisoformat(why.rpartition(" ")[2]).timestamp()
        assert history.prune(told).reason_against(key, told, limits) == ""
        before = told - 1.001
        assert before < now or history.prune(before).reason_against(key, before, limits) == why


def test_a_limit_that_was_lowered_holds_for_what_was_done_before() -> None:
    """All but one of the last hour's commands must have left it."""
    history = ActionHistory()
    for minutes in (0, 20, 40):
        history = done(history, KEYS[minutes // 20 * 4], START + 60 * minutes)
    last = START + 40 * 60

    why = history.reason_against(OTHER, last, Limits(per_model=0.0, per_hour=1))
    assert why == f"--limit.per-hour 1 is reached: allowed again at {moment(last + HOUR)}"


def test_a_failure_is_tried_again_at_once_and_given_up_in_the_end() -> None:
    """The limit for a model does not hold back another try of the same; three failures do."""
    limits = Limits(per_model=HOUR, per_hour=100)
    history = ActionHistory()
    for _ in range(3):
        assert history.reason_against(KEY, START, limits) == ""
        history = done(history, KEY, START, succeeded=False)

    why = history.reason_against(KEY, START, limits)
    assert why == "given up after 3 failures in a row, until the alert resolves"
    assert history.resolve(KEY, START).reason_against(KEY, START, limits) == ""


def test_only_what_was_done_counts_as_done_for_another_alert() -> None:
    """A failure of one is no failure of the other."""
    same = KEYS[1]
    copied = done(ActionHistory(), KEY, START).copy_success(same, KEY)
    assert copied.reason_against(same, START, FREE).startswith("already acted")
    failed = done(ActionHistory(), KEY, START, succeeded=False)
    assert failed.copy_success(same, KEY) is failed
    begun = failed.begin(same, START)
    assert begun.copy_success(same, KEY) is begun
    assert ActionHistory().copy_success(same, KEY) == ActionHistory()


def test_an_alert_that_was_away_for_ten_minutes_is_the_same_decision() -> None:
    """A gap in scraping ends it, and it begins anew; after an hour it is another, and so is another K."""
    again, other = KEY._replace(starts_at="later"), KEYS[2]._replace(starts_at="later")
    history = done(ActionHistory(), KEY, START).resolve(KEY, START + 5 * HOUR)
    back = START + 5 * HOUR + 600
    resumed = history.resume(again, back)
    for now in (back, back + 9 * HOUR):
        assert resumed.reason_against(again, now, FREE).startswith("already acted upon")
    assert history.resume(again, back + HOUR) is history
    assert history.resume(other, back) is history
    failed = done(ActionHistory(), KEY, START, succeeded=False)
    assert failed.resume(again, START + 600) is failed


def test_what_still_fires_is_not_forgotten_and_what_does_not_is() -> None:
    """A month without a sight of the alert."""
    history = done(ActionHistory(), KEY, START)
    late = START + FORGET_AFTER

    assert history.saw(KEY, late - 60).prune(late + HOUR).decisions.keys() == {KEY}
    assert history.prune(late + HOUR).decisions == {}


def test_not_every_sight_changes_the_ledger() -> None:
    """Each change is a write to the disk."""
    history = done(ActionHistory(), KEY, START)
    assert history.saw(KEY, START + 60) is history
    assert history.saw(OTHER, START + 60) is history


def test_it_is_bounded() -> None:
    """What was not seen for longest goes first."""
    decisions = {
        DecisionKey("", "", str(n), "disable", "0", ""): DecisionRecord(DONE, 0, START + n, START + n)
        for n in range(MAX_DECISIONS + 5)
    }
    kept = ActionHistory(decisions).prune(START + 2 * MAX_DECISIONS).decisions

    assert len(kept) == MAX_DECISIONS
    assert min(int(key.model_name) for key in kept) == 5


def test_a_clock_that_was_set_back_holds_for_the_limit_and_no_longer() -> None:
    """Not until it has caught up."""
    history = done(ActionHistory(), KEY, START + 1000 * HOUR).prune(START)
    assert history.reason_against(OTHER, START, Limits()) != ""
    assert history.prune(START + HOUR).reason_against(OTHER, START + HOUR, Limits(HOUR, 1)) == ""


# --- the state file

KEPT = State(
    ActionHistory({DecisionKey("é", *"bcde\0"): DecisionRecord(DONE, 0, 4.0, 5.0)}, (4.0,)),
    ActionHistory({KEY: DecisionRecord(CommandState.FAILED, 2, 7.5, 8.0)}, (6.0, 7.5)),
)
GOOD = encode_state(KEPT).decode()
REFUSED_FILES = [
    ("", "not a state file of act"),
    (GOOD[:-20], "not a state file of act"),
    ("[" * 100_000, "not a state file of act"),
    ('{"format": "vllm-specdec-act/9"}', "its format is 'vllm-specdec-act/9', and vllm-specdec-act/1"),
    (GOOD.replace('"done"', '"perhaps"'), "Invalid enum value"),
    (GOOD.replace('"seen": 5.0', '"seen": -1'), "Expected `float` >= 0"),
    (GOOD.replace('"seen": 5.0', '"seen": 1e999'), "not a state file of act"),
    (GOOD.replace('"failures": 0', '"failures": -1'), "Expected `int` >= 0"),
    (GOOD.replace('"failures": 0', '"failures": 0, "more": 0'), "unknown field"),
]


def test_any_other_state_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """One in doubt is not overwritten; one that does not exist is empty, and one that was written is read."""
    file = tmp_path / "state.json"
    assert load_state(file) == State()
    assert decode_state(GOOD.encode()) == KEPT
    for body, why in REFUSED_FILES:
        file.write_text(body)
        with pytest.raises(StateError) as caught:
            load_state(file)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(StateError, match="cannot be read: Is a directory"):
        load_state(tmp_path)
