"""Every dialect: what is read of a server's answer, and what is refused."""

import json
import re
from typing import Any

import msgspec
import yaml

from support.builders import (
    DATA,
    OPENMETRICS,
    counters,
    labels,
    lines,
    refusal,
    rendered,
    upstream,
    vllm_lines,
    vllm_text,
)
from support.copies import replace
from support.golden import golden_text
from vllm_specdec_exporter.engines import ENGINE_OF, Unrecognized, read
from vllm_specdec_exporter.engines.dialect import MAX_POSITIONS
from vllm_specdec_exporter.engines.limits import MAX_ALL_POSITIONS, MAX_ENGINES
from vllm_specdec_exporter.engines.reading import (
    Counters,
    Drafting,
    EngineKey,
    EngineReading,
    Lifetime,
    Load,
    Reading,
)
from vllm_specdec_exporter.exposition.text import MAX_LINES, MalformedExposition

QWEN = EngineKey("Qwen/Qwen3-8B", "0")
TINY = EngineKey("tiny-llama")
LLAMA = EngineKey("meta-llama/Llama-3.3-70B-Instruct", "0")

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "vllm:generation_tokens_total"


def only(reading: Reading) -> EngineReading:
    (engine,) = reading.engines
    return engine


def malformed(text: bytes, content_type: str = "") -> str:
    return refusal(MalformedExposition, read, text, content_type)


# --- every kind of server that is known, from its source or recorded

#: What every file of tests/data/upstream says, without what a server does not tell.
EXPECTED = DATA / "upstream" / "expected.json"


def told_of(reading: Reading) -> dict[str, Any]:
    """A reading and its kind of server."""
    return {
        **msgspec.to_builtins(reading),
        "server": ENGINE_OF[reading.dialect].name,
    }


def told(value: Any) -> Any:
    """A reading as JSON has it, without what is None or empty."""
    if isinstance(value, dict):
        return {
            key: told(inner)
            for key, inner in value.items()
            if inner not in (None, "", [], ())
        }
    if isinstance(value, list | tuple):
        return [told(inner) for inner in value]
    return value


def test_a_server_of_each_dialect_is_recognised_and_read_in_full() -> None:
    """Real answers do not contradict themselves: none has a defect. TensorRT-LLM's is
    composed.

    `UPDATE_GOLDEN=1` writes the expected values anew; hold them against the answers.
    """
    names = sorted(path.name for path in (DATA / "upstream").glob("*.txt"))
    found = {
        name: read(upstream(name), OPENMETRICS if "openmetrics" in name else "")
        for name in names
    }
    assert [
        engine.defects
        for one in found.values()
        for engine in one.engines
        if engine.defects
    ] == []
    text = (
        json.dumps(
            {name: told(told_of(one)) for name, one in found.items()},
            indent=1,
        )
        + "\n"
    )
    assert json.loads(golden_text(EXPECTED, text)) == json.loads(text)


def test_vllm_is_read_alike_in_both_formats_both_spellings_and_multiprocess_mode() -> (
    None
):
    k3 = Counters(4, 12, 6, (3, 2, 1), 0)
    for name, created in (
        ("vllm-0.20.2-1engine-k3.classic.txt", 1795203951.7769022),
        ("vllm-0.32.0-1engine-k3.classic.txt", 1795203950.901428),
        ("vllm-0.32.0-1engine-k3-multiproc.classic.txt", None),
        ("vllm-0.32.0-1engine-k3.classic.txt.om-underscores", 1795203950.901428),
    ):
        found = only(read(rendered(name)))
        assert found.counters == replace(k3, created=created), name
        assert (found.key, found.load) == (LLAMA, Load(3, 0, 0)), name


class TestTensorRT:
    """Its answer is composed from the names in its source, not recorded."""

    TEXT = upstream("trtllm-k3.composed.txt")

    def test_a_position_without_a_count_is_0_and_k_is_the_servers_own(self) -> None:
        text = re.sub(rb'(?m)^.*token_position="[12]".*\n', b"", self.TEXT)
        found = only(read(text))

        counted = Counters(
            300, 300, 240, (240, 0, 0), 863, drafted_tokens_per_position=(300,)
        )
        assert (found.counters, found.drafting) == (
            counted,
            Drafting(3, 4, None, "eagle3"),
        )

    def test_the_counters_of_iterations_are_divided_by_nothing(self) -> None:
        """Without those of finished requests nothing is known: times differ."""
        found = only(
            read(
                re.sub(
                    rb"(?m)^trtllm_spec_decode_(?:drafted|accepted)_.*\n",
                    b"",
                    self.TEXT,
                )
            )
        )

        assert found.counters == Counters(None, None, None, (), 863)
        assert found.uncounted.endswith("the server runs without return_perf_metrics")

    def test_without_a_draft_the_count_is_0_and_the_server_is_off(self) -> None:
        """The counters of finished requests are there, so it would count drafts."""
        found = only(read(re.sub(rb"(?m)^trtllm_spec.*\n", b"", self.TEXT)))

        assert (found.counters, found.uncounted) == (Counters(0, 0, 0, (), 863), "")
        assert not found.shows_speculation

    def test_what_the_server_says_of_its_configuration_is_read_with_care(self) -> None:
        for before, after, expected in (
            ('spec_num_tokens="3"', 'spec_num_tokens="-3"', (None, None)),
            ('spec_num_tokens="3"', 'spec_num_tokens="1e9"', (None, None)),
            ('spec_enabled="true"', 'spec_enabled="false"', (3, 0)),
            (',spec_num_tokens="3"', "", (None, None)),
        ):
            drafting = only(
                read(self.TEXT.replace(before.encode(), after.encode()))
            ).drafting
            assert (
                drafting.num_speculative_tokens,
                drafting.verified_tokens,
            ) == expected, after


class TestRecognition:
    def test_a_v0_counter_beside_the_drafts_counter_is_v1(self) -> None:
        """The counter of drafts exists in V1 alone, so whatever stands beside it, it is
        V1.
        """
        text = vllm_text(counters(10, [5])) + lines(
            'vllm:spec_decode_efficiency{engine="0",model_name="m"} 0.5'
        )

        assert read(text).dialect == "vllm-v1"

    def test_any_series_that_only_v0_has_shows_v0_in_either_spelling(self) -> None:
        marks = [
            "spec_decode_draft_acceptance_rate",
            "spec_decode_efficiency",
            "spec_decode_num_emitted_tokens_total",
            "num_requests_swapped",
            "cpu_cache_usage_perc",
        ]
        for name in (
            f"{prefix}{mark}" for mark in marks for prefix in ("vllm:", "vllm_")
        ):
            assert (
                read(lines(f"{name} 0", f"{name[:5]}generation_tokens_total 7")).dialect
                == "vllm-v0"
            ), name

    def test_the_names_that_v0_shares_with_v1_are_not_counters_of_v0(self) -> None:
        """V0's counters add running totals, so under V1's names they are not read."""
        emitted = "vllm:spec_decode_num_emitted_tokens_total"
        text = lines(f"{ACCEPTED} 24730", f"{DRAFT_TOKENS} 39485", f"{emitted} 20084")

        assert (
            only(read(text + lines("vllm:num_requests_running 1"))).counters
            == Counters()
        )

    def test_v0_before_its_first_draft(self) -> None:
        """V0's gauges are NaN before the first draft: they are there, their values are
        not.
        """
        text = lines(
            "vllm:spec_decode_draft_acceptance_rate NaN",
            "vllm:spec_decode_efficiency NaN",
        )

        assert only(read(text)) == EngineReading(EngineKey(), lifetime=Lifetime())

    def test_an_exposition_without_a_known_series_is_told_from_a_broken_one(
        self,
    ) -> None:
        texts = (
            b"",
            b"# EOF\n",
            b"# TYPE go_goroutines gauge\ngo_goroutines 7\n",
            b"<p>not found</p>\n",
            f"{DRAFTS}s 7\n".encode(),
            f"# TYPE {DRAFTS} counter\n".encode(),
        )
        said = [refusal(Unrecognized, read, text) for text in texts]
        begins = (
            "no series of a known server; is this the /metrics of a supported server"
        )
        assert [each for each in said if not each.startswith(begins)] == []

    def test_prefixes_of_whoever_renames_vllms_series(self) -> None:
        """KServe on OpenShift and Ray Serve; rules and dashboards read no others."""
        expected = only(read(vllm_text(counters(10, [5])))).counters
        prefixes = yaml.safe_load(
            (DATA.parents[1] / "alerts/mixin.yml").read_text("utf-8")
        )["prefixes"]
        for prefix in (*prefixes, "ray_vllm_", "ray_vllm:"):
            text = lines(*vllm_lines(counters(10, [5]), prefix=prefix, ReplicaId="r0"))
            engine = only(read(text))
            assert (engine.key.engine, engine.counters) == ("ReplicaId=r0", expected), (
                prefix
            )

    def test_metrics_of_an_earlier_tensorrt_and_of_an_exporter_are_named(self) -> None:
        labels = '{engine_type="undefined",model_name="undefined"}'
        series = f"e2e_request_latency_seconds_count{labels} 3"

        assert "an earlier TensorRT-LLM" in refusal(Unrecognized, read, lines(series))
        own = (DATA.parent / "golden" / "metrics.prom").read_bytes()
        assert "metrics of an exporter" in refusal(Unrecognized, read, own)

    def test_drafts_positions_and_v0s_gauges_show_speculation(self) -> None:
        """Counters at 0 show nothing; positions at 0 do."""
        shows = {
            Counters(): False,
            Counters(0, 0, 0, (), 100): False,
            Counters(generation_tokens=100): False,
            Counters(1, 3, 0, ()): True,
            Counters(0, 0, 0, (0, 0)): True,
        }
        assert {
            c: EngineReading(EngineKey(), c).shows_speculation for c in shows
        } == shows
        assert EngineReading(EngineKey(), lifetime=Lifetime()).shows_speculation is True


class TestFormats:
    def test_an_openmetrics_text_needs_its_end_and_a_classic_one_has_none(self) -> None:
        """OpenMetrics leaves the line end behind its # EOF to the server."""
        body = vllm_text(counters(10, [5]))

        assert malformed(body, OPENMETRICS) == (
            "an OpenMetrics text without # EOF at the end: it was truncated"
        )
        whole = read(body, "text/plain; version=0.0.4; charset=utf-8")
        for ending in (b"# EOF", b"# EOF\r\n", b"# EOF\n"):
            assert read(body + ending, OPENMETRICS) == whole, ending

    def test_a_page_instead_of_metrics_is_named_as_what_it_is(self) -> None:
        """A login page or an error page."""
        pages = [
            "<!DOCTYPE html>\n<html></html>\n",
            "<html>\n",
            "\n  <HTML lang='en'>\n",
            "<!doctype html><body>vllm:generation_tokens_total 1</body>\n",
        ]
        assert {malformed(page.encode()) for page in pages} == {
            "an HTML page instead of metrics"
        }
        assert malformed(b'{"error": "not found"}').startswith(
            "the text ends within a line: "
        )


def test_a_hostile_answer_is_refused_early() -> None:
    """What no server prints is refused before it costs time or memory."""
    for rows, why in (
        ([f'{GENERATED}{{model_name="{"x" * 2000}"}} 1'], "label of more than"),
        ([f'{GENERATED}{{a="{"x" * 20000}"}} 1'], "selected lines"),
        (
            [f'{GENERATED}{{pid="{i}"}} 1' for i in range(MAX_LINES + 1)],
            "selected lines",
        ),
    ):
        assert why in malformed(lines(*rows))


class TestIdentity:
    def test_model_and_engine_identify(self) -> None:
        """Both may be missing.

        Any other label separates engines, unless it names a process of one.
        """
        for pairs, expected in (
            ({}, EngineKey()),
            ({"engine": "3"}, EngineKey("", "3")),
            ({"model_name": "m", "zone": "", "pid": "77"}, EngineKey("m")),
            (
                {"engine": "0", "zone": "eu,x=1%", "at": "b"},
                EngineKey("", "0,at=b,zone=eu%2Cx%3D1%25"),
            ),
            ({"zone": "eu"}, EngineKey("", "zone=eu")),
        ):
            assert only(read(lines(f"{DRAFTS}{labels(pairs)} 1"))).key == expected

    def test_an_endless_number_of_engines_is_refused(self) -> None:
        """They become label values. As many as a large deployment has are read."""
        rows = [f'{DRAFTS}{{engine="{i}"}} 1' for i in range(MAX_ENGINES + 1)]

        assert len(read(lines(*rows[:-1])).engines) == MAX_ENGINES == 256
        assert (
            malformed(lines(*rows))
            == "more than 256 engines in one response, by engine"
        )
        rows = [f'{DRAFTS}{{instance="{i}"}} 1' for i in range(MAX_ENGINES + 1)]
        assert (
            malformed(lines(*rows))
            == "more than 256 engines in one response, by instance"
        )


class TestMerging:
    """Series of one engine that differ in labels without meaning, such as `pid`."""

    def test_counts_add_up_and_what_is_no_count_does_not(self) -> None:
        """Of the same cache the largest share counts, of start times the newest."""
        text = lines(
            f'{DRAFTS}{{engine="0",pid="7"}} 10',
            f'{DRAFTS}{{engine="0",pid="8"}} 5',
            f'{PER_POS}{{engine="0",position="0",pid="7"}} 4',
            f'{PER_POS}{{engine="0",position="0",pid="8"}} 3',
            'vllm:num_requests_running{engine="0",pid="7"} 1',
            'vllm:num_requests_running{engine="0",pid="8"} 2',
            *(
                f'vllm:kv_cache_usage_perc{{engine="0",pid="{i}"}} 0.{i}'
                for i in (3, 6, 4)
            ),
            'vllm:spec_decode_num_drafts_created{engine="0",pid="1"} 1.7e9',
            'vllm:spec_decode_num_drafts_created{engine="0",pid="2"} 1700000005',
        )
        engine = only(read(text))

        assert engine.counters == Counters(
            15, accepted_tokens_per_position=(7,), created=1.7e9 + 5
        )
        assert engine.load == Load(requests_running=3, kv_cache_usage_ratio=0.6)

    def test_two_names_of_the_cache_usage_are_one_value(self) -> None:
        """The present name is read where it has a value, in any order, else the old
        one.
        """
        old = 'vllm:gpu_cache_usage_perc{engine="0"}'
        new = 'vllm:kv_cache_usage_perc{engine="0"}'

        for rows, usage in (
            ([f"{old} 0.25", f"{new} 0.5"], 0.5),
            ([f"{new} 0.5", f"{old} 0.25"], 0.5),
            ([f"{old} 0.25"], 0.25),
            ([f"{new} NaN", f"{old} 0.25"], 0.25),
        ):
            assert only(read(lines(*rows))).load == Load(kv_cache_usage_ratio=usage), (
                rows
            )


class TestBadValues:
    def test_a_counter_that_no_server_can_have_makes_the_answer_untrustworthy(
        self,
    ) -> None:
        """Negative, no number, or more than any server can count.

        A count is believed up to 1e18.
        """
        created = "vllm:spec_decode_num_drafts_created"
        series = [
            DRAFTS,
            DRAFT_TOKENS,
            ACCEPTED,
            f'{PER_POS}{{position="0"}}',
            GENERATED,
            created,
        ]
        values = ["NaN", "+Inf", "-Inf", "-0.5", "1e999", "1.1e18"]
        rows = [f"{name} -1" for name in series] + [
            f"{DRAFTS} {value}" for value in values
        ]

        running = "vllm:num_requests_running 1"
        said = {row: malformed(lines(row, running)) for row in rows}
        assert [
            row
            for row in rows
            if not said[row].endswith("a counter must be from 0 to 1e+18")
        ] == []
        assert only(read(lines(f"{DRAFTS} 1e18"))).counters == Counters(drafts=1e18)

    def test_a_gauge_without_a_usable_value_is_left_out_and_said_to_be(self) -> None:
        """The rest is read."""
        for name, value, shown in (
            ("vllm:num_requests_running", "-1", "-1.0"),
            ("vllm:num_requests_waiting", "NaN", "nan"),
            ("vllm:kv_cache_usage_perc", "-Inf", "-inf"),
            ("vllm:kv_cache_usage_perc", "+Inf", "inf"),
            ("vllm:kv_cache_usage_perc", "55", "55.0"),
            ("vllm:num_requests_running", "1e19", "1e+19"),
        ):
            assert only(read(lines(f"{name} {value}", f"{DRAFTS} 7"))) == EngineReading(
                EngineKey(), Counters(drafts=7), defects=(f"{name} is {shown}",)
            )

    def test_a_series_that_occurs_twice_is_refused(self) -> None:
        """In whatever order of labels: neither can be believed."""
        first = f'{DRAFTS}{{engine="0",model_name="m"}}'
        for again in (f"{first} 7", f'{DRAFTS}{{ model_name = "m", engine="0", }} 8'):
            assert malformed(lines(f"{first} 7", again)) == f"duplicate series {first}"

    def test_a_series_in_both_spellings_is_it_twice(self) -> None:
        """`vllm:x` and `vllm_x` are one series.

        Different series may be spelled differently.
        """
        for name in ("spec_decode_num_drafts_total", "num_requests_running"):
            for first, second in (
                (f"vllm:{name}", f"vllm_{name}"),
                (f"vllm_{name}", f"vllm:{name}"),
            ):
                text = lines(f'{first}{{engine="0"}} 7', f'{second}{{engine="0"}} 7')
                assert malformed(text) == f'duplicate series {second}{{engine="0"}}'

        mixed = lines(
            f'{DRAFTS}{{engine="0"}} 7', 'vllm_generation_tokens_total{engine="0"} 9'
        )
        assert only(read(mixed)).counters == Counters(drafts=7, generation_tokens=9)


class TestPositions:
    def test_a_position_is_a_small_whole_number(self) -> None:
        """Anything else breaks the answer, and so does a count per position without its
        position.
        """
        for position in (
            "-1",
            "1.5",
            "256",
            "1000",
            "",
            "x",
            " 1",
            "+1",
            "1e0",
            "1_0",
            "²",
            "٣",
        ):
            series = f'{PER_POS}{{position="{position}"}}'
            assert (
                malformed(lines(f"{series} 1", f"{DRAFTS} 1"))
                == f"{series} has no valid position label"
            )
        assert malformed(lines(f"{PER_POS} 1")).endswith(" has no valid position label")

    def test_as_many_positions_as_any_drafter_has_in_any_order(self) -> None:
        """The Rust front end prints them in arbitrary order."""
        text = lines(
            *(
                f'{PER_POS}{{position="{i}"}} {i}'
                for i in (2, *range(3, MAX_POSITIONS), 0, 1)
            )
        )

        assert only(read(text)).counters.accepted_tokens_per_position == tuple(
            map(float, range(256))
        )

    def test_too_many_positions_of_all_engines_are_ignored(self) -> None:
        """Each becomes several series; the other counters are read."""
        engines = MAX_ALL_POSITIONS // 64
        each = range(64)
        rows = [
            f'{PER_POS}{{engine="{e}",position="{p}"}} 5'
            for e in range(engines)
            for p in each
        ]
        assert all(
            len(e.counters.accepted_tokens_per_position) == 64
            for e in read(lines(*rows)).engines
        )
        more = read(
            lines(f"{DRAFTS} 10", f'{PER_POS}{{position="0"}} 5', *rows)
        ).engines[0]
        assert more.counters == Counters(drafts=10)
        assert more.defects == (
            "more than 2048 positions in one response: per-position values ignored",
        )

    def test_positions_with_gaps_are_ignored_as_a_whole(self) -> None:
        """And said to be: none is guessed."""
        for present, shown in (((0, 2), "0, 2"), ((1, 2, 3), "1, 2, 3")):
            text = lines(
                f"{DRAFTS} 10", *(f'{PER_POS}{{position="{i}"}} 5' for i in present)
            )
            defect = f"positions with gaps ({shown}): per-position values ignored"
            assert only(read(text)) == EngineReading(
                EngineKey(), Counters(drafts=10), defects=(defect,)
            )

    def test_accepted_tokens_must_have_been_accepted_somewhere(self) -> None:
        """A server that has not drafted yet need not have positions."""
        defects = [
            only(read(lines(f"{DRAFTS} {n}", f"{ACCEPTED} {n}"))).defects
            for n in (5, 0)
        ]

        assert defects == [("accepted tokens without any per-position series",), ()]
