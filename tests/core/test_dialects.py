from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vllm_specdec_exporter
from support.builders import (
    OPENMETRICS,
    counters,
    final_answer,
    labels,
    lines,
    rendered,
    upstream,
    vllm_lines,
    vllm_text,
)
from vllm_specdec_exporter.dialects import DIALECTS, Dialect, Unrecognized, read
from vllm_specdec_exporter.dialects._dialect import MAX_ENGINES, MAX_POSITIONS, normalise
from vllm_specdec_exporter.exposition import Line, MalformedExposition, Selection
from vllm_specdec_exporter.reading import Counters, EngineKey, EngineReading, Lifetime, Load, Reading

QWEN = EngineKey("Qwen/Qwen3-8B", "0")
LLAMA = EngineKey("meta-llama/Llama-3.3-70B-Instruct", "0")
TINY = EngineKey("tiny-llama", "0")

DRAFTS = "vllm:spec_decode_num_drafts_total"
PER_POS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def only(reading: Reading) -> EngineReading:
    (engine,) = reading.engines
    return engine


class TestFixtures:
    """Every kind of server that is known, from its source or recorded."""

    @pytest.mark.parametrize(
        ("file", "content_type", "expected"),
        [
            (
                "vllm-rust-k3.openmetrics.txt",
                OPENMETRICS,
                Reading(
                    "vllm-v1",
                    (
                        EngineReading(
                            QWEN,
                            Counters(3391, 10173, 6172, (2537, 1994, 1641), 9603),
                            Load(3, 1, 0.0421875),
                        ),
                    ),
                ),
            ),
            (
                "vllm-rust-nospec.openmetrics.txt",
                OPENMETRICS,
                Reading(
                    "vllm-v1",
                    (EngineReading(QWEN, Counters(0, 0, 0, (), 10056), Load(3, 1, 0.0421875)),),
                ),
            ),
            (
                "vllm-v0-k5.txt",
                "",
                Reading(
                    "vllm-v0",
                    (
                        EngineReading(
                            EngineKey("meta-llama/Llama-3.1-8B-Instruct"),
                            Counters(generation_tokens=10515),
                            Load(6, 0, 0.0311),
                            Lifetime(0.6260512171988618, 0.42417536094425123),
                        ),
                    ),
                ),
            ),
            (
                "lmdeploy-k3.txt",
                "",
                Reading(
                    "lmdeploy",
                    (
                        EngineReading(
                            QWEN, Counters(2132, 6396, 4075, (1671, 1324, 1080), 6231), Load(4, 1, 0.1375)
                        ),
                    ),
                ),
            ),
            (
                "lmdeploy-nospec.txt",
                "",
                Reading("lmdeploy", (EngineReading(QWEN, Counters(0, 0, 0, (), 6327), Load(4, 1, 0.1375)),)),
            ),
            (
                "llamacpp-k4.txt",
                "",
                Reading(
                    "llamacpp",
                    (
                        EngineReading(
                            EngineKey(),
                            Counters(5854, 19922, 10515, (4431, 3252, 1855, 977), 17633, resolution=1e-5),
                            Load(1, 0),
                            counts_finished_requests=True,
                        ),
                    ),
                ),
            ),
            (
                "llamacpp-k4-large.txt",
                "",
                Reading(
                    "llamacpp",
                    (
                        EngineReading(
                            EngineKey(),
                            Counters(
                                3577310,
                                12174100,
                                6425680,
                                (2707756, 1987272, 1133612, 597043),
                                10773800,
                                resolution=1e-5,
                            ),
                            Load(4, 2),
                            counts_finished_requests=True,
                        ),
                    ),
                ),
            ),
            (
                "llamacpp-nospec.txt",
                "",
                Reading(
                    "llamacpp",
                    (
                        EngineReading(
                            EngineKey(),
                            Counters(0, 0, 0, (), 13192, resolution=1e-5),
                            Load(1, 0),
                            counts_finished_requests=True,
                        ),
                    ),
                ),
            ),
            (
                "vllm-diffusion.txt",
                "",
                Reading(
                    "vllm-diffusion",
                    (
                        EngineReading(
                            EngineKey("example/diffusion-llm", "0"),
                            Counters(generation_tokens=10160),
                            Load(0, 0, 0),
                        ),
                    ),
                    speculative=False,
                ),
            ),
        ],
    )
    def test_other_servers(self, file: str, content_type: str, expected: Reading) -> None:
        """A server of each dialect is recognised and read in full."""
        assert expected == read(upstream(file), content_type)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (
                "vllm-0.20.2-1engine-k3.classic.txt",
                Counters(4, 12, 6, (3, 2, 1), 0, created=1795203951.7769022),
            ),
            (
                "vllm-0.32.0-1engine-k3.classic.txt",
                Counters(4, 12, 6, (3, 2, 1), 0, created=1795203950.901428),
            ),
            ("vllm-0.32.0-1engine-k3-multiproc.classic.txt", Counters(4, 12, 6, (3, 2, 1), 0)),
            (
                "vllm-0.32.0-1engine-k3.classic.txt.om-underscores",
                Counters(4, 12, 6, (3, 2, 1), 0, created=1795203950.901428),
            ),
        ],
    )
    def test_vllm(self, name: str, expected: Counters) -> None:
        """VLLM is read alike in both formats, both spellings, and multiprocess mode."""
        assert Reading("vllm-v1", (EngineReading(LLAMA, expected, Load(3, 0, 0)),)) == read(rendered(name))

    def test_vllm_without_speculation(self) -> None:
        """A vLLM without speculation prints no speculation series, which is not the same as zeros."""
        engine = only(read(rendered("vllm-0.32.0-1engine-nospec.classic.txt")))

        assert Counters(generation_tokens=0) == engine.counters

    def test_eight_engines(self) -> None:
        """Each engine is read on its own."""
        reading = read(rendered("vllm-0.32.0-8engine-k5.classic.txt"))

        assert [str(i) for i in range(8)] == [engine.key.engine for engine in reading.engines]
        assert {(6.0, 30.0, 15.0, (5.0, 4.0, 3.0, 2.0, 1.0))} == {
            (c.drafts, c.draft_tokens, c.accepted_tokens, c.accepted_tokens_per_position)
            for c in (engine.counters for engine in reading.engines)
        }

    def test_a_recorded_server(self) -> None:
        """The last answer of a real vLLM 0.32.0."""
        expected = EngineReading(
            TINY,
            Counters(12187, 42375, 27303, (9013, 7584, 5717, 4989), 51600, created=1795203442.3824117),
            Load(0, 0, 0),
        )

        assert Reading("vllm-v1", (expected,)) == read(final_answer("ngram-phases"))

    def test_no_fixture_shows_a_defect(self) -> None:
        """Real answers do not contradict themselves."""
        files = sorted(
            path.name for path in Path(__file__).parents[1].joinpath("data/upstream").glob("*.txt")
        )

        assert len(files) == 9
        assert [only(read(upstream(file))).defects for file in files] == [()] * 9


class TestRecognition:
    def test_a_v0_counter_beside_the_drafts_counter_is_v1(self) -> None:
        """The counter of drafts exists in V1 alone, so whatever stands beside it, it is V1."""
        text = vllm_text(counters(10, [5])) + lines('vllm:spec_decode_efficiency{model_name="m"} 0.5')

        assert read(text).dialect == "vllm-v1"

    @pytest.mark.parametrize(
        "mark",
        [
            "spec_decode_draft_acceptance_rate",
            "spec_decode_efficiency",
            "spec_decode_num_emitted_tokens_total",
            "num_requests_swapped",
            "cpu_cache_usage_perc",
        ],
    )
    @pytest.mark.parametrize("prefix", ["vllm:", "vllm_"])
    def test_marks_of_v0(self, prefix: str, mark: str) -> None:
        """Any series that only V0 has shows V0, in either spelling."""
        assert read(lines(f"{prefix}{mark} 0", f"{prefix}generation_tokens_total 7")).dialect == "vllm-v0"

    def test_the_names_that_v0_shares_with_v1_are_not_counters_of_v0(self) -> None:
        """V0's counters add running totals, so even under V1's names they are not read."""
        text = lines(
            "vllm:spec_decode_num_accepted_tokens_total 24730",
            "vllm:spec_decode_num_draft_tokens_total 39485",
            "vllm:spec_decode_num_emitted_tokens_total 20084",
        )

        assert Counters() == only(read(text + lines("vllm:num_requests_running 1"))).counters

    def test_v0_before_its_first_draft(self) -> None:
        """V0's gauges are NaN before the first draft: they are there, their values are not."""
        text = lines("vllm:spec_decode_draft_acceptance_rate NaN", "vllm:spec_decode_efficiency NaN")

        assert EngineReading(EngineKey(), lifetime=Lifetime()) == only(read(text))

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"\n",
            b"# EOF\n",
            b"# HELP go_goroutines Number.\n# TYPE go_goroutines gauge\ngo_goroutines 7\n",
            b"vllm:spec_decode_num_drafts_totals 7\n",
            b"# HELP vllm:spec_decode_num_drafts_total x\n# TYPE vllm:spec_decode_num_drafts_total counter\n",
            b'sglang:generation_tokens_total{model_name="m"} 3\n',
            b"<p>not found</p>\n",
        ],
    )
    def test_an_unknown_server(self, text: bytes) -> None:
        """An exposition without a known series is told from a broken one."""
        with pytest.raises(Unrecognized, match=r"^no series of a known server; is this a vLLM /metrics page"):
            read(text)

    @pytest.mark.parametrize(
        ("reading", "expected"),
        [
            (EngineReading(EngineKey()), False),
            (EngineReading(EngineKey(), Counters(0, 0, 0, (), 100)), False),
            (EngineReading(EngineKey(), Counters(generation_tokens=100)), False),
            (EngineReading(EngineKey(), Counters(1, 3, 0, ())), True),
            (EngineReading(EngineKey(), Counters(0, 0, 0, (0, 0))), True),
            (EngineReading(EngineKey(), lifetime=Lifetime()), True),
        ],
    )
    def test_what_shows_speculation(self, reading: EngineReading, expected: bool) -> None:
        """Counters at 0 show nothing; drafts, positions at 0 and V0's gauges do."""
        assert expected is reading.shows_speculation


class TestFormats:
    def test_an_openmetrics_text_needs_its_end(self) -> None:
        """An OpenMetrics text without # EOF was cut off at the end of a line."""
        whole = upstream("vllm-rust-k3.openmetrics.txt")

        with pytest.raises(
            MalformedExposition, match=r"^an OpenMetrics text without its closing # EOF: it was cut off$"
        ):
            read(whole.removesuffix(b"# EOF\n"), OPENMETRICS)

    def test_a_classic_text_needs_no_end(self) -> None:
        """Classic text has no # EOF."""
        assert read(vllm_text(counters(10, [5])), "text/plain; version=0.0.4; charset=utf-8").engines

    @pytest.mark.parametrize("ending", [b"# EOF", b"# EOF\r\n", b"# EOF\n"])
    def test_line_ends_behind_the_end(self, ending: bytes) -> None:
        """OpenMetrics leaves the line end behind its # EOF to the server."""
        body = vllm_text(counters(10, [5]))

        assert read(body) == read(body + ending, OPENMETRICS)

    @pytest.mark.parametrize(
        "text",
        [
            "<!DOCTYPE html>\n<html></html>\n",
            "<html>\n",
            "\n  <HTML lang='en'>\n",
            "<!doctype html><body>vllm:generation_tokens_total 1</body>\n",
        ],
    )
    def test_html(self, text: str) -> None:
        """A login page or an error page is named as what it is."""
        with pytest.raises(MalformedExposition, match=r"^an HTML page instead of metrics$"):
            read(text.encode())

    def test_json(self) -> None:
        """An error in JSON is no exposition."""
        with pytest.raises(MalformedExposition, match=r"^the text ends within a line: "):
            read(b'{"error": "not found"}')

    @pytest.mark.parametrize("cut", [1, 2, 3, 10])
    def test_a_cut_off_text(self, cut: int) -> None:
        """A text that lost its end is refused: its last number may have lost digits."""
        text = vllm_text(counters(1000, [800, 600]))

        with pytest.raises(MalformedExposition):
            read(text[:-cut])

    def test_timestamps_exemplars_and_exponents(self) -> None:
        """What may stand behind a value, and how a value may be written, changes nothing."""
        text = lines(
            "vllm:spec_decode_num_drafts_total 1.5e+03 1795203444000",
            'vllm:spec_decode_num_draft_tokens_total 3000 # {trace_id="a"} 1 1795203444.1',
            "vllm:spec_decode_num_accepted_tokens_total 1E3",
            f'{PER_POS}{{position="0"}} 6e2',
            f'{PER_POS}{{position="1"}} 400.0 1795203444000',
        )

        assert EngineReading(EngineKey(), Counters(1500, 3000, 1000, (600, 400))) == only(read(text))


class TestIdentity:
    @pytest.mark.parametrize(
        ("pairs", "expected"),
        [
            ({}, EngineKey()),
            ({"model_name": "m"}, EngineKey("m")),
            ({"engine": "3"}, EngineKey("", "3")),
            ({"engine": "3", "model_name": "m"}, EngineKey("m", "3")),
            ({"model_name": 'a"b\\c\nd}é', "engine": "0"}, EngineKey('a"b\\c\nd}é', "0")),
            ({"model_name": "m", "zone": "eu", "pid": "77"}, EngineKey("m")),
        ],
    )
    def test_labels(self, pairs: dict[str, str], expected: EngineKey) -> None:
        """Model and engine identify; both may be missing, and any other label means nothing."""
        assert expected == only(read(lines(f"{DRAFTS}{labels(pairs)} 1"))).key

    def test_an_engine_has_all_that_bears_its_labels(self) -> None:
        """Engines of two models on one server are apart, and sorted."""
        text = lines(
            *vllm_lines(counters(20, [9]), model_name="b", engine="0"),
            *vllm_lines(counters(10, [5]), model_name="a", engine="1"),
            *vllm_lines(counters(30, [7]), model_name="a", engine="0"),
        )

        assert [
            (EngineKey("a", "0"), 30.0),
            (EngineKey("a", "1"), 10.0),
            (EngineKey("b", "0"), 20.0),
        ] == [(engine.key, engine.counters.drafts) for engine in read(text).engines]

    def test_as_many_engines_as_a_server_can_have(self) -> None:
        """Large deployments are read."""
        text = lines(*(f'{DRAFTS}{{engine="{i}"}} 1' for i in range(MAX_ENGINES)))

        assert len(read(text).engines) == MAX_ENGINES

    def test_more_engines_than_a_server_can_have(self) -> None:
        """Engines become label values, so an endless number of them is refused."""
        text = lines(*(f'{DRAFTS}{{engine="{i}"}} 1' for i in range(MAX_ENGINES + 1)))

        with pytest.raises(MalformedExposition, match=r"^more than 256 engines in one answer$"):
            read(text)


class TestMerging:
    """Series of one engine that differ in labels without meaning, such as `pid`."""

    def test_counts_add_up(self) -> None:
        """Each process counted its own part."""
        text = lines(
            f'{DRAFTS}{{engine="0",pid="7"}} 10',
            f'{DRAFTS}{{engine="0",pid="8"}} 5',
            f'{PER_POS}{{engine="0",position="0",pid="7"}} 4',
            f'{PER_POS}{{engine="0",position="0",pid="8"}} 3',
            'vllm:num_requests_running{engine="0",pid="7"} 1',
            'vllm:num_requests_running{engine="0",pid="8"} 2',
        )
        engine = only(read(text))

        assert (Counters(drafts=15, accepted_tokens_per_position=(7,)), Load(requests_running=3)) == (
            engine.counters,
            engine.load,
        )

    def test_shares_of_the_same_cache_do_not_add_up(self) -> None:
        """VLLM 0.9.2 prints the cache usage once per API server."""
        text = lines(*(f'vllm:kv_cache_usage_perc{{engine="0",pid="{i}"}} 0.{i}' for i in (3, 6, 4)))

        assert Load(kv_cache_usage_ratio=0.6) == only(read(text)).load

    def test_start_times_do_not_add_up(self) -> None:
        """The newest start counts."""
        name = "vllm:spec_decode_num_drafts_created"

        assert (
            only(read(lines(f'{name}{{pid="1"}} 1.7e9', f'{name}{{pid="2"}} 1700000005'))).counters.created
            == 1.7e9 + 5
        )

    @pytest.mark.parametrize("order", [1, -1])
    def test_two_names_of_one_value(self, order: int) -> None:
        """VLLM 0.9.2 prints the cache usage under both its names: the present one is read, not the sum."""
        both = ['vllm:gpu_cache_usage_perc{engine="0"} 0.25', 'vllm:kv_cache_usage_perc{engine="0"} 0.5']

        assert Load(kv_cache_usage_ratio=0.5) == only(read(lines(*both[::order]))).load

    def test_the_old_name_alone(self) -> None:
        """Before 0.9.2 there is only the old name."""
        assert Load(kv_cache_usage_ratio=0.25) == only(read(lines("vllm:gpu_cache_usage_perc 0.25"))).load

    def test_the_old_name_where_the_new_one_has_no_value(self) -> None:
        """A name whose value cannot be used does not hide the other."""
        text = lines("vllm:kv_cache_usage_perc NaN", "vllm:gpu_cache_usage_perc 0.25")

        assert Load(kv_cache_usage_ratio=0.25) == only(read(text)).load


class TestBadValues:
    @pytest.mark.parametrize(
        "value", ["NaN", "+Inf", "-Inf", "-1", "-0.5", "1e999", "1.1e18", "1.7976931348623157e308"]
    )
    @pytest.mark.parametrize(
        "name",
        [
            DRAFTS,
            "vllm:spec_decode_num_draft_tokens_total",
            "vllm:spec_decode_num_accepted_tokens_total",
            f'{PER_POS}{{position="0"}}',
            "vllm:generation_tokens_total",
            "vllm:spec_decode_num_drafts_created",
        ],
    )
    def test_counters(self, name: str, value: str) -> None:
        """A counter that is negative, or more than any server can count, makes the answer untrustworthy."""
        with pytest.raises(MalformedExposition, match=r"a counter lies from 0 to 1e\+18$"):
            read(lines(f"{name} {value}", "vllm:num_requests_running 1"))

    def test_the_largest_counter(self) -> None:
        """A count is believed up to 1e18."""
        assert Counters(drafts=1e18) == only(read(lines(f"{DRAFTS} 1e18"))).counters

    @pytest.mark.parametrize(
        ("value", "shown"),
        [("NaN", "nan"), ("+Inf", "inf"), ("-Inf", "-inf"), ("-1", "-1.0"), ("1e19", "1e+19")],
    )
    @pytest.mark.parametrize(
        "name", ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]
    )
    def test_gauges(self, name: str, value: str, shown: str) -> None:
        """A gauge without a usable value is left out and said to be; the rest is read."""
        expected = EngineReading(EngineKey(), Counters(drafts=7), defects=(f"{name} is {shown}",))

        assert expected == only(read(lines(f"{name} {value}", f"{DRAFTS} 7")))

    @pytest.mark.parametrize(
        "again",
        [
            f'{DRAFTS}{{engine="0",model_name="m"}} 7',
            f'{DRAFTS}{{engine="0",model_name="m"}} 8',
            f'{DRAFTS}{{model_name="m",engine="0"}} 8',
            f'{DRAFTS}{{ model_name = "m", engine="0", }} 8',
        ],
    )
    def test_a_series_that_occurs_twice(self, again: str) -> None:
        """The same series twice, in whatever order of labels, is refused: neither can be believed."""
        message = f'the series {DRAFTS}{{engine="0",model_name="m"}} occurs twice'

        with pytest.raises(MalformedExposition, match=f"^{re.escape(message)}$"):
            read(lines(f'{DRAFTS}{{engine="0",model_name="m"}} 7', again))

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("name", ["spec_decode_num_drafts_total", "num_requests_running"])
    def test_a_series_in_both_spellings(self, name: str, order: int) -> None:
        """`vllm:x` and `vllm_x` are one series, so both in one answer are it twice, not its double."""
        first, second = (f"vllm:{name}", f"vllm_{name}")[::order]

        with pytest.raises(MalformedExposition, match=rf'^the series {second}{{engine="0"}} occurs twice$'):
            read(lines(f'{first}{{engine="0"}} 7', f'{second}{{engine="0"}} 7'))

    def test_different_series_in_both_spellings(self) -> None:
        """Spellings may be mixed otherwise."""
        text = lines(f'{DRAFTS}{{engine="0"}} 7', 'vllm_generation_tokens_total{engine="0"} 9')

        assert Counters(drafts=7, generation_tokens=9) == only(read(text)).counters


class TestPositions:
    @pytest.mark.parametrize(
        "position", ["-1", "1.5", "999", "256", "1000", "", "x", " 1", "+1", "1e0", "1_0", "²", "٣"]
    )
    def test_a_label_that_is_no_position(self, position: str) -> None:
        """A position is a small whole number; anything else breaks the answer."""
        series = f'{PER_POS}{{position="{position}"}}'

        with pytest.raises(MalformedExposition, match=f"^{re.escape(series)} has no usable position label$"):
            read(lines(f"{series} 1", f"{DRAFTS} 1"))

    def test_no_position_label_at_all(self) -> None:
        """A count per position without its position cannot be used."""
        with pytest.raises(MalformedExposition, match=r" has no usable position label$"):
            read(lines(f"{PER_POS} 1"))

    def test_the_last_possible_position(self) -> None:
        """As many positions are read as any drafter has."""
        text = lines(*(f'{PER_POS}{{position="{i}"}} 0' for i in range(MAX_POSITIONS)))

        assert only(read(text)).counters.accepted_tokens_per_position == (0.0,) * 256

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
    def test_positions_in_any_order(self, order: tuple[int, ...]) -> None:
        """The Rust front end prints positions in arbitrary order."""
        text = lines(*(f'{PER_POS}{{position="{i}"}} {30 - i}' for i in order))

        assert only(read(text)).counters.accepted_tokens_per_position == (30.0, 29.0, 28.0)

    @pytest.mark.parametrize(
        ("present", "shown"), [((0, 2), "0, 2"), ((1,), "1"), ((1, 2, 3), "1, 2, 3"), ((0, 1, 3), "0, 1, 3")]
    )
    def test_positions_with_holes(self, present: tuple[int, ...], shown: str) -> None:
        """Positions with holes are left out as a whole and said to be: none is guessed."""
        text = lines(f"{DRAFTS} 10", *(f'{PER_POS}{{position="{i}"}} 5' for i in present))

        assert EngineReading(
            EngineKey(),
            Counters(drafts=10),
            defects=(f"positions with holes ({shown}): per-position values left out",),
        ) == only(read(text))

    def test_accepted_tokens_without_positions(self) -> None:
        """Accepted tokens must have been accepted somewhere."""
        text = lines(f"{DRAFTS} 10", "vllm:spec_decode_num_accepted_tokens_total 5")

        assert only(read(text)).defects == ("accepted tokens without any per-position series",)

    def test_nothing_accepted_and_no_positions(self) -> None:
        """A server that has not drafted yet need not have positions."""
        text = lines(f"{DRAFTS} 0", "vllm:spec_decode_num_accepted_tokens_total 0")

        assert only(read(text)).defects == ()


class TestAddingADialect:
    NEWCOMER = Dialect(
        name="newcomer",
        prefixes=("new_",),
        series={"drafts": ("rounds", "old_rounds"), "requests_running": ("busy",)},
    )

    def test_a_dialect_is_data(self) -> None:
        """A description of names is all that reading a further server takes."""
        text = lines('new_rounds{engine="1"} 7', "new_busy 2", "other 3")
        found = Selection(self.NEWCOMER.names()).lines(text)

        assert Reading(
            "newcomer",
            (
                EngineReading(EngineKey(), load=Load(requests_running=2)),
                EngineReading(EngineKey("", "1"), Counters(drafts=7)),
            ),
        ) == normalise(self.NEWCOMER, found)

    def test_lines_of_other_servers_are_passed_over(self) -> None:
        """A line that the dialect does not know is none of its business, whatever its value."""
        found = [Line("vllm:x", (), float("nan")), Line("new_rounds", (), 7.0)]

        assert Counters(drafts=7) == only(normalise(self.NEWCOMER, found)).counters

    @pytest.mark.parametrize(
        ("seen", "expected"),
        [
            (set(), False),
            ({"new_busy"}, True),
            ({"new_old_rounds"}, True),
            ({"busy"}, False),
        ],
    )
    def test_any_of_its_series_marks_it(self, seen: set[str], expected: bool) -> None:
        """A dialect without marks of its own is recognised by any of its series."""
        assert expected is self.NEWCOMER.recognises(seen)

    def test_it_takes_one_file(self, tmp_path: Path) -> None:
        """A module with a DIALECT among the dialects is found and tried, without a word elsewhere."""
        package = Path(vllm_specdec_exporter.__file__).parent
        copy = tmp_path / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("simulator", "__pycache__"))
        (copy / "dialects" / "newcomer.py").write_text(
            "from ._dialect import Dialect\n"
            'DIALECT = Dialect(name="newcomer", prefixes=("new_",), series={"drafts": ("rounds",)})\n'
        )
        script = (
            "from vllm_specdec_exporter.dialects import read\n"
            "reading = read(b'new_rounds 7\\n')\n"
            "print(reading.dialect, reading.engines[0].counters.drafts)\n"
        )

        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )

        assert done.stdout == "newcomer 7.0\n"

    def test_the_known_ones(self) -> None:
        """The dialects, in the order in which they are tried: those that another would claim come first."""
        assert [d.name for d in DIALECTS] == ["vllm-diffusion", "vllm-v0", "llamacpp", "lmdeploy", "vllm-v1"]


FIXTURES = [
    upstream("llamacpp-k4.txt"),
    vllm_text(counters(1000, [800, 600], created=1.7e9)),
    lines("vllm:spec_decode_efficiency 0.5", 'vllm:kv_cache_usage_perc{pid="3"} NaN'),
]


class TestFuzz:
    @given(st.binary(max_size=200), st.sampled_from(["", OPENMETRICS]))
    def test_arbitrary_bytes(self, body: bytes, content_type: str) -> None:
        """Whatever a server answers, it is read, refused as malformed, or not recognised."""
        with pytest.raises((MalformedExposition, Unrecognized)):
            read(body, content_type)

    @given(st.data())
    def test_damaged_answers(self, data: st.DataObject) -> None:
        """A real answer with bytes changed, cut out or put in raises nothing else either."""
        body = bytearray(data.draw(st.sampled_from(FIXTURES)))
        for _ in range(data.draw(st.integers(1, 4))):
            start = data.draw(st.integers(0, len(body)))
            body[start : start + data.draw(st.integers(0, 6))] = data.draw(
                st.binary(max_size=6) | st.sampled_from([b"\n", b'"', b"{", b"-", b"1e400", b"NaN", b"\\"])
            )
        try:
            outcome = read(bytes(body)).dialect
        except (MalformedExposition, Unrecognized):
            outcome = "refused"

        assert outcome in {"refused", *(dialect.name for dialect in DIALECTS)}
