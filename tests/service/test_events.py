"""What is worth a log line: payoff and recommendation when they change, and in the
aggregate.
"""

import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from per_request.results import RESULTS
from per_request.traffic import MODEL
from statuspage.examples import IDLE, POOR, SHALLOW, engine, old_engine, page_of, target
from support.copies import replace
from support.exporter import parse_logfmt, running_exporter
from support.faulty_server import FaultyServer, answer, capture, replay
from support.ports import free_port
from support.programs import eventually
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.engines.reading import EngineKey
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.observe.result import EngineResult, PollFailure, TargetResult
from vllm_specdec_exporter.publish.events import aggregate, changes
from vllm_specdec_exporter.runtime import logs

GOOD = engine()
BAD = engine(POOR, running=40)
BETTER = engine(SHALLOW)


def as_it_is(engine: EngineResult) -> EngineResult:
    """These engines have their reasons already."""
    return engine


def fields_of(
    previous: EngineResult | None, current: EngineResult, *messages: str
) -> list[dict[str, object]]:
    """Return the fields of the lines with these messages that a change leads to."""
    first = target() if previous is None else target(previous)
    return [
        event.fields
        for event in changes(first, target(current), as_it_is)
        if event.message in messages
    ]


def test_an_engine_that_is_new_has_its_verdict_and_its_recommendation_told() -> None:
    """With the speedup, where it comes from, and why."""
    payoff, recommendation = fields_of(None, BAD, "payoff", "recommendation")

    assert payoff.items() >= {
        ("payoff", "harmful"),
        ("speedup", 0.85),
        ("speedup_basis", "calibrated"),
        ("why", "; ".join(BAD.payoff.reasons)),
    }
    unsure = replace(
        BAD, payoff=Payoff(PayoffVerdict.UNKNOWN, likely=PayoffVerdict.HARMFUL)
    )
    (payoff,) = fields_of(None, unsure, "payoff")
    assert payoff["payoff"] == "unknown"
    assert payoff["payoff_likely"] == "harmful"
    assert recommendation["recommendation"] == "switch_method"
    assert recommendation["recommended_num_speculative_tokens"] == 1
    assert recommendation["why"] == BAD.advice.reason


def test_counters_that_restart() -> None:
    """The number of resets rises."""
    assert fields_of(GOOD, replace(GOOD, engine_resets_total=1), "counters reset")
    assert fields_of(GOOD, GOOD, "counters reset") == []


def test_many_changes_are_one_line() -> None:
    """Up to 24 lines of one poll are written, of more only their number."""
    idle = [
        engine(key=EngineKey("m", str(number)), drafts_per_second=0)
        for number in range(25)
    ]
    messages = [
        line.message for line in changes(target(), target(*idle[:24]), as_it_is)
    ]
    assert messages == ["activity"] * 24
    [line] = changes(target(), target(*idle), as_it_is)
    assert line.message == "many engines changed"
    assert line.fields["changes"] == 25


def test_a_change_is_told_once() -> None:
    """What stays is not, however the numbers behind it move; another K is another
    recommendation.
    """
    moved = replace(
        BAD,
        payoff=replace(BAD.payoff, speedup=0.7),
        advice=replace(BAD.advice, reason="else"),
    )
    measured = replace(
        GOOD, payoff=replace(GOOD.payoff, basis=Basis.MEASURED, speedup=1.3)
    )
    new_k = replace(BETTER, advice=replace(BETTER.advice, num_speculative_tokens=1))

    assert len(fields_of(GOOD, BAD, "payoff", "recommendation")) == 2
    for current in (BAD, moved):
        assert fields_of(BAD, current, "payoff", "recommendation") == [], current
    assert fields_of(GOOD, measured, "payoff", "recommendation") == []
    [line] = fields_of(BETTER, new_k, "payoff", "recommendation")
    assert line["recommended_num_speculative_tokens"] == 1


def test_what_is_not_known_is_left_out() -> None:
    """No line has `None`: a verdict that is unknown has no speedup, and a first K none
    before it.
    """
    unknown = replace(GOOD, payoff=Payoff(PayoffVerdict.UNKNOWN, basis=Basis.MODELLED))
    first_k = replace(GOOD, num_speculative_tokens=None)

    [payoff] = fields_of(GOOD, unknown, "payoff")
    [k] = fields_of(first_k, GOOD, "num_speculative_tokens changed")
    assert payoff["payoff"] == "unknown"
    assert "speedup" not in payoff
    assert k["now"] == 4
    assert "before" not in k


@pytest.mark.parametrize(
    "result", [IDLE, old_engine(), replace(GOOD, payoff=Payoff(), advice=Advice())]
)
def test_that_nothing_can_be_said_any_more_is_not_told(result: EngineResult) -> None:
    """The change of activity has a line of its own."""
    same_engine = replace(GOOD, model_name=result.model_name, engine=result.engine)
    assert fields_of(same_engine, result, "payoff") == []
    assert fields_of(None, result, "payoff", "recommendation") == []


def aggregated(only: EngineResult) -> dict[str, object]:
    """Return the fields of the engine's aggregate line."""
    [event] = aggregate(page_of(target(only)))
    return event.fields


def test_a_port_that_refuses_is_told_in_every_interval() -> None:
    """A wrong port looks like a model that loads, but it does not end."""
    failure = PollFailure("refused", "nothing listens at the address")
    [event] = aggregate(page_of(TargetResult("http://vllm:8001", failure=failure)))

    assert event.level == logging.INFO
    assert event.message == "no metrics"
    assert event.fields["reason"] == failure.reason
    assert event.fields["error"] == failure.message


def test_the_aggregate_tells_payoff_and_recommendation() -> None:
    """Speedups have two decimals, as everywhere."""
    measured = engine(measured=1.62)
    fields = aggregated(measured)

    assert fields.items() >= {
        ("payoff", PayoffVerdict.BENEFICIAL),
        ("speedup", 1.62),
        ("speedup_basis", Basis.MEASURED),
        ("recommendation", measured.advice.action),
        ("recommended_num_speculative_tokens", measured.advice.num_speculative_tokens),
    }


def test_the_aggregate_says_what_there_is() -> None:
    """An active engine without advice is told apart from one that is not judged; a K of
    0 is a value.
    """
    varying = aggregated(engine(draft_length=2.3))
    off = aggregated(replace(GOOD, advice=Advice(Action.DISABLE, 0, "no K pays")))

    assert varying["recommendation"] == Action.INSUFFICIENT_DATA
    assert "recommended_num_speculative_tokens" not in varying
    assert varying["payoff"] == PayoffVerdict.BENEFICIAL
    assert not {"payoff", "speedup", "speedup_basis", "recommendation"} & set(
        aggregated(IDLE)
    )
    assert off["recommended_num_speculative_tokens"] == 0


def of_requests(name: str) -> list[dict[str, object]]:
    """Return the fields of the lines on single requests."""
    first, *events = aggregate(replace(page_of(target(GOOD)), requests=RESULTS[name]))
    assert first.message == "aggregate"
    assert {event.message for event in events} <= {"requests"}
    return [event.fields for event in events]


def test_a_model_whose_requests_are_known_has_a_line_on_them() -> None:
    """Who loses, in the words of the metrics; ratios are rounded, and what cannot be
    known is left out.
    """
    [mixed] = of_requests("mixed")
    assert mixed.pop("request_acceptance_ratio_p10") == pytest.approx(0.3375, abs=0.001)
    assert mixed == {
        "model_name": MODEL,
        "window": "30m",
        "window_requests": 1000,
        "request_losing_ratio": 0.39,
        "request_gaining_ratio": 0.597,
        "request_workload_mixed": 1,
    }
    assert [fields["model_name"] for fields in of_requests("two-models")] == [
        "an-adapter",
        MODEL,
    ]
    [few] = of_requests("few")
    assert few["window_requests"] == 16
    assert "request_workload_mixed" not in few
    # A line that holds nothing would be written every minute.
    assert of_requests("unrecorded") == of_requests("nothing") == []


# --- how lines are written


_WRITES = """
import logging, resource, sys
from vllm_specdec_exporter.runtime.logs import LineHandler

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

log = logging.getLogger("test")
log.addHandler(LineHandler(2))
"""


def test_a_paused_terminal_does_not_block_logging() -> None:
    """It takes a few kilobytes and then nothing; a thousand lines are logged all the
    same, at once.
    """
    reads, writes = pty.openpty()
    try:
        code = _WRITES + (
            "for number in range(1000): log.error('%d ' % number + 'x' * 900)\n"
            "print('done')"
        )
        done = subprocess.run(
            (sys.executable, "-c", code),
            stdout=subprocess.PIPE,
            stderr=writes,
            timeout=240,
            check=True,
        )
        assert done.stdout == b"done\n"
        assert os.read(reads, 6) == b"0 xxxx"
    finally:
        os.close(reads)
        os.close(writes)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Lines are lost without an error; what comes once there is room is written."""
    file = tmp_path / "log"
    code = _WRITES + (
        "limit(0); log.error('lost'); log.handlers[0].flush(); limit(1000); "
        "log.error('another')"
    )
    with file.open("wb") as stream:
        subprocess.run(
            (sys.executable, "-c", code), stderr=stream, timeout=240, check=True
        )
    assert file.read_text().splitlines() == ["another"]


def test_a_line_that_clients_cause_is_written_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever the clock on the wall is set; what was written longer ago takes no
    memory.
    """
    limited = logs._ClientFilter()
    clock = 1000.0
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: clock))

    def is_written(text: str, wall: float) -> bool:
        record = logging.makeLogRecord(
            {"name": logs.LOGGER.name, "msg": text, "is_seldom": True}
        )
        record.created = wall
        return limited.filter(record)

    assert is_written("a", 50_000.0)
    assert not is_written("a", 90_000.0)
    assert not is_written("a", 10_000.0)
    clock += 60.0
    assert is_written("a", 10_000.0)
    written = 0
    for number in range(1000):
        clock += 1.0
        written += is_written(f"{number}", 10_000.0)
    assert written == 1000
    assert len(limited._logged) == 60


def test_a_field_without_a_value() -> None:
    """It is left out."""
    record = logging.makeLogRecord({"levelname": "INFO", "msg": "payoff"})
    record.fields = {"speedup": None, "k": 0, "why": ""}
    line = logs.LineFormatter("logfmt").format(record)
    assert line.endswith(' level=info msg=payoff k=0 why=""')
    assert "speedup" not in logs.LineFormatter("json").format(record)


@pytest.mark.full
class TestLines:
    @pytest.mark.parametrize("form", ["logfmt", "json"])
    def test_every_line_is_one_record_in_its_format(self, form: str) -> None:
        """Every line is one record with time, level and message, in the set form."""
        flags = ("--log.format", form, "--log.interval", "300ms")
        with (
            FaultyServer(replay()) as server,
            running_exporter("--vllm.url", server.url, *flags) as exporter,
        ):
            exporter.wait_until_up()
            server.behaviour = answer(b'<html> "quoted" = \\ \n')
            exporter.wait_for(lambda metrics: metrics.errors())
            server.behaviour = replay()
            exporter.wait_until_up()
            eventually(lambda: exporter.log().count("aggregate") >= 2)
            exporter.terminate()
            lines = exporter.log().split("\n")
            assert lines.pop() == ""
            read = json.loads if form == "json" else parse_logfmt
            records = [read(line) for line in lines]

        assert all(list(record)[:3] == ["time", "level", "msg"] for record in records)
        assert all(record["time"].endswith("Z") for record in records)
        assert {"info", "warning"} == {record["level"] for record in records}
        assert {record["msg"] for record in records} >= {
            "listening",
            "server is up",
            "activity",
            "server is down",
            "aggregate",
            "stopping",
        }

    def test_level_and_no_aggregate(self) -> None:
        """Lines below the level are left out; an interval of 0 s means no aggregate, at
        any level.
        """
        quiet = (
            "--log.level",
            "warning",
            "--web.listen-address",
            f"127.0.0.1:{free_port()}",
        )
        with FaultyServer(answer(capture())) as server:
            url = ("--vllm.url", server.url)
            with running_exporter(*url, *quiet) as exporter:
                exporter.wait_until_up()
                server.behaviour = answer(b"")
                exporter.wait_for(lambda metrics: metrics.errors())
                assert [line["level"] for line in exporter.log_lines()] == ["warning"]
            server.behaviour = replay()
            with running_exporter(*url, "--log.interval", "0s") as exporter:
                asked = len(server.polls())
                eventually(lambda: len(server.polls()) > asked + 5)
                assert exporter.log_lines("aggregate") == []
                assert exporter.get("/-/healthy").status == 200
