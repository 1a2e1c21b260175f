"""The history's laws."""

import math
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.builders import refusal
from vllm_specdec_exporter.commands.act.decision import Decision
from vllm_specdec_exporter.commands.act.history import (
    FORGET_AFTER,
    HOUR,
    MAX_FAILURES,
    ActionHistory,
    Command,
    load,
    save,
)
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.config.values import format_time

START = 1_770_000_000.0


def decision(
    model: str = "a",
    request: str = "disable",
    k: str = "",
    *,
    starts_at: float = START - 60,
) -> Decision:
    """What an alert requests."""
    return Decision(
        {"model_name": model, "action": request, "recommended_k": k}, b"{}", starts_at
    )


#: They began before any time of the tests: none is a new decision because of its begin.
DECISIONS = [
    decision(model, request, k, starts_at=starts_at)
    for model in ("a", "b", "c")
    for request, k in (("disable", ""), ("increase_k", "5"))
    for starts_at in (1000.0, 2000.0)
]
ONE = decision()
OTHER_K = decision(request="increase_k", k="5")


def done(
    history: ActionHistory,
    requested: Decision,
    moment: float,
    *,
    succeeded: bool = True,
) -> ActionHistory:
    """The history after a command that took no time."""
    begun = history.begin(requested, moment)
    return begun.succeed(requested) if succeeded else begun


def is_done(history: ActionHistory, requested: Decision, moment: float) -> bool:
    """Whether it is not acted upon, without limits, because it was already."""
    why = history.reason_against(requested, moment, 0.0, 1000)
    return why.startswith("already acted upon")


class HistoryRules(RuleBasedStateMachine):
    """A receiver's life: alerts come, commands end well, badly or not at all, the clock
    runs or goes back.
    """

    @initialize(
        per_model=st.sampled_from([0.0, 60.0, HOUR, 30 * HOUR]),
        per_hour=st.integers(min_value=1, max_value=6),
    )
    def begin(self, per_model: float, per_hour: int) -> None:
        self.limits = (per_model, per_hour)
        self.history = ActionHistory()
        self.wall = START
        self.real = 0.0
        self.begun: list[tuple[float, str, str]] = []
        self.succeeded: list[tuple[str, str]] = []
        self.failures: defaultdict[tuple[str, str], int] = defaultdict(int)

    @rule(seconds=st.floats(min_value=0, max_value=3 * HOUR))
    def time_passes(self, seconds: float) -> None:
        self.wall += seconds
        self.real += seconds

    @rule(seconds=st.floats(min_value=0, max_value=48 * HOUR))
    def the_clock_is_set_back_between_two_processes(self, seconds: float) -> None:
        self.wall -= seconds

    @rule(seconds=st.floats(min_value=-48 * HOUR, max_value=48 * HOUR))
    def the_clock_is_set(self, seconds: float) -> None:
        self.wall += seconds
        self.history = self.history.shift(seconds)

    @rule(
        requested=st.sampled_from(DECISIONS),
        fate=st.sampled_from(["done", "failed", "cut short"]),
    )
    def an_alert_comes(self, requested: Decision, fate: str) -> None:
        history = self.history.prune(self.wall).saw(requested, self.wall, firing=True)
        if history.reason_against(requested, self.wall, *self.limits):
            self.history = history
            return
        self.begun.append((self.real, requested.model, requested.request))
        self.history = history.begin(requested, self.wall)
        key = (requested.model, requested.request)
        if fate == "done":
            self.history = self.history.succeed(requested)
            self.succeeded.append(key)
            self.failures[key] = 0
            return
        self.failures[key] += 1
        if fate == "cut short":
            self.the_process_begins_anew()

    @rule()
    def the_process_begins_anew(self) -> None:
        body = msgspec.json.encode(self.history)
        self.history = msgspec.json.decode(body, type=ActionHistory)

    @rule(requested=st.sampled_from(DECISIONS))
    def an_alert_resolves(self, requested: Decision) -> None:
        self.history = self.history.saw(requested, self.wall, firing=False)
        self.failures[requested.model, requested.request] = 0

    @invariant()
    def what_was_done_is_done_once(self) -> None:
        assert len(set(self.succeeded)) == len(self.succeeded)

    @invariant()
    def no_hour_has_more_than_its_limit(self) -> None:
        times = [time for time, *_ in self.begun]
        for first, later in zip(times, times[self.limits[1] :], strict=False):
            assert later - first >= HOUR - 1e-6, first

    @invariant()
    def one_model_is_left_in_peace(self) -> None:
        for model in {model for _, model, _ in self.begun}:
            mine = [(time, request) for time, of, request in self.begun if of == model]
            assert [
                (first, second)
                for first, second in pairwise(mine)
                if first[1] != second[1]
                and second[0] - first[0] < self.limits[0] - 1e-6
            ] == [], model

    @invariant()
    def what_keeps_failing_is_given_up(self) -> None:
        assert all(count <= MAX_FAILURES for count in self.failures.values())


TestHistoryRules = HistoryRules.TestCase


@given(
    st.lists(
        st.tuples(st.sampled_from(DECISIONS), st.floats(min_value=0, max_value=HOUR)),
        max_size=12,
    ),
    st.sampled_from(DECISIONS),
)
def test_what_a_limit_holds_back_is_allowed_when_it_says(
    past: list[tuple[Decision, float]], requested: Decision
) -> None:
    """The moment in the reason is the first whole second at which it may be done."""
    limits = (600.0, 3)
    history = ActionHistory()
    moment = START
    for earlier, pause in past:
        moment += pause
        history = history.prune(moment)
        if not history.reason_against(earlier, moment, *limits):
            history = done(history, earlier, moment)
    why = history.reason_against(requested, moment, *limits)
    if "allowed again at" in why:
        allowed = datetime.fromisoformat(why.rpartition(" ")[2]).timestamp()
        assert history.prune(allowed).reason_against(requested, allowed, *limits) == ""
        just_before = allowed - 1.001
        assert (
            just_before < moment
            or history.prune(just_before).reason_against(
                requested, just_before, *limits
            )
            == why
        )


def test_a_limit_that_was_lowered_holds_for_what_was_done_before() -> None:
    """All but one of the last hour's commands must have left it."""
    history = ActionHistory()
    for index, model in enumerate("abc"):
        history = done(history, decision(model), START + 1200 * index)
    last = START + 40 * 60

    why = history.reason_against(OTHER_K, last, 0.0, 1)
    assert why == (
        "--limit.per-hour 1 is reached: allowed again at "
        f"{format_time(math.ceil(last + HOUR))}"
    )


def test_a_failure_is_tried_again_at_once_and_given_up_in_the_end() -> None:
    """The limit for a model does not hold back another try of the same; three failures
    do.
    """

    def why(history: ActionHistory, requested: Decision = ONE) -> str:
        return history.reason_against(requested, START, HOUR, 100)

    history = ActionHistory()
    reasons = []
    for _ in range(3):
        reasons.append(why(history))
        history = done(history, ONE, START, succeeded=False)
    given_up = "given up after 3 failures in a row, until the alert resolves"
    assert [*reasons, why(history)] == ["", "", "", given_up]
    assert why(history.saw(ONE, START, firing=True)) == given_up
    assert why(history.saw(ONE, START, firing=False)) == ""
    assert why(history, OTHER_K).startswith("this model was acted upon")
    assert why(history, decision("b")) == ""


@pytest.mark.parametrize(
    ("later", "same"),
    [
        (-5 * HOUR, True),  # another reason for the same
        (600.0, True),  # a gap in scraping
        (HOUR, True),
        (HOUR + 1, False),
    ],
)
def test_an_alert_requests_the_same_decision_if_it_began_before_the_end_or_soon_after(
    later: float, same: bool
) -> None:
    """Then it is not acted upon again, however long it fires; a new decision has no
    failures of the old.
    """
    end = START + 5 * HOUR
    history = done(ActionHistory(), ONE, START).saw(ONE, end, firing=False)
    again = decision(starts_at=end + later)
    moment = end + max(later, 0.0)
    assert is_done(history, again, moment) is same
    history = history.saw(again, moment, firing=True)
    assert is_done(history, again, moment + 9 * HOUR) is same
    # A new one of the same request is held back by the limit for its model.
    why = history.reason_against(again, moment, 9 * HOUR, 100)
    assert same or why.startswith("this model was acted upon")
    failed = done(ActionHistory(), ONE, START, succeeded=False)
    retried = failed.saw(ONE, end, firing=True).begin(again, moment)
    assert retried.models[again.model]["disable"].failures == 1 + same


def test_a_begin_in_the_future_counts_as_now() -> None:
    """So it does not make a new decision."""
    history = done(ActionHistory(), ONE, START)
    future = decision(starts_at=START + 9 * HOUR)
    assert is_done(history, future, START + 60)
    # Also if the clock here is behind that of Prometheus, and the alert repeats.
    assert is_done(done(ActionHistory(), future, START), future, START + 5 * HOUR)


def test_what_still_fires_is_not_forgotten_and_what_does_not_is() -> None:
    """A month without a sight of the alert."""
    history = done(ActionHistory(), ONE, START)
    forgotten_at = START + FORGET_AFTER

    firing = history.saw(ONE, forgotten_at - 60, firing=True)
    assert list(firing.prune(forgotten_at + HOUR).models) == [ONE.model]
    assert history.prune(forgotten_at + HOUR).models == {}


def test_an_alert_that_is_seen_again_soon_changes_nothing() -> None:
    """Each change is a write to the disk."""
    history = done(ActionHistory(), ONE, START)
    assert history.saw(ONE, START + 60, firing=True) is history
    assert history.saw(OTHER_K, START + 600, firing=True) is history
    assert history.saw(ONE, START + 600, firing=True) != history


def test_a_clock_that_was_set_back_holds_for_the_limit_and_no_longer() -> None:
    """Not until it has caught up."""
    history = done(ActionHistory(), ONE, START + 1000 * HOUR).prune(START)
    assert history.reason_against(OTHER_K, START, HOUR, 4) != ""
    assert (
        history.prune(START + HOUR).reason_against(OTHER_K, START + HOUR, HOUR, 1) == ""
    )


# --- the state file

KEPT = ActionHistory(
    {decision("é\0").model: {"increase_k 5": Command(2, 4.0, 5.0, 3.0)}}, (4.0, 6.0)
)
GOOD = msgspec.json.encode(KEPT).decode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "Input data was truncated"),
        (GOOD[:-20], "Input data was truncated"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        (GOOD.replace("act/2", "act/9"), "Invalid enum value 'vllm-specdec-act/9'"),
        (GOOD.replace('"done":false', '"done":"perhaps"'), "Expected `bool`"),
        (GOOD.replace('"seen":5.0', '"seen":-1'), "Expected `float` >= 0"),
        (GOOD.replace('"seen":5.0', '"seen":1e999'), "Number out of range"),
        (GOOD.replace('"failures":2', '"failures":-1'), "Expected `int` >= 0"),
        (GOOD.replace('"failures":2', '"failures":2,"more":0'), "unknown field"),
    ],
)
def test_any_other_state_file_is_refused_in_one_line(
    tmp_path: Path, body: str, why: str
) -> None:
    """One in doubt is not overwritten."""
    (tmp_path / "state.json").write_text(body)
    message = refusal(ConfigError, load, tmp_path / "state.json")
    assert why in message
    assert "remove the file to begin anew" in message
    assert "\n" not in message


def test_a_state_file_that_does_not_exist_is_empty_and_one_that_was_written_is_read(
    tmp_path: Path,
) -> None:
    assert load(tmp_path / "state.json") == ActionHistory()
    save(tmp_path / "state.json", KEPT)
    assert load(tmp_path / "state.json") == KEPT
    assert "Is a directory" in refusal(ConfigError, load, tmp_path)
