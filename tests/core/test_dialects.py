"""Every dialect: what is read of a server's answer, and what is refused."""

import json
import re
from itertools import permutations
from typing import Any

import msgspec
import pytest

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
from vllm_specdec_exporter.engines.tables import DIALECT_NAMED
from vllm_specdec_exporter.exposition.text import MAX_LINES, MalformedExposition

QWEN = EngineKey("Qwen/Qwen3-8B", "0")
TINY = EngineKey("tiny-llama")
LLAMA = EngineKey("meta-llama/Llama-3.3-70B-Instruct", "0")

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PER_POS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATED = "vllm:generation_tokens_total"
USAGE = "vllm:kv_cache_usage_perc"
OLD_USAGE = "vllm:gpu_cache_usage_perc"


def only(reading: Reading) -> EngineReading:
    (engine,) = reading.engines
    return engine


def engine_of(*rows: str) -> EngineReading:
    """Return what is read of an answer with these lines, which is of one engine."""
    return only(read(lines(*rows)))


def malformed(text: bytes, content_type: str = "") -> str:
    return refusal(MalformedExposition, read, text, content_type)


# --- every kind of server that is known, from its source or recorded

#: What every file of tests/data/upstream says, without what a server does not tell.
EXPECTED = DATA / "upstream" / "expected.json"


def without_empty(value: Any) -> Any:
    """Return JSON without what is ``null`` or empty."""
    if isinstance(value, list | tuple):
        return list(map(without_empty, value))
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, inner in value.items():
        if inner not in (None, "", [], ()):
            kept[key] = without_empty(inner)
    return kept


def test_a_server_of_each_dialect_is_recognised_and_read_in_full() -> None:
    """Real answers do not contradict themselves: none has a defect. TensorRT-LLM's is
    composed.

    `UPDATE_GOLDEN=1` writes the expected values anew; hold them against the answers.
    """
    documents = {}
    defects = {}
    for path in sorted((DATA / "upstream").glob("*.txt")):
        content_type = OPENMETRICS if "openmetrics" in path.name else ""
        reading = read(path.read_bytes(), content_type)
        if contradictions := [each.defects for each in reading.engines if each.defects]:
            defects[path.name] = contradictions
        server = ENGINE_OF[reading.dialect].name
        document = {**msgspec.to_builtins(reading), "server": server}
        documents[path.name] = without_empty(document)
    text = json.dumps(documents, indent=1) + "\n"
    assert json.loads(golden_text(EXPECTED, text)) == documents
    assert defects == {}


@pytest.mark.parametrize(
    ("name", "created"),
    [
        ("vllm-0.20.2-1engine-k3.classic.txt", 1795203951.7769022),
        ("vllm-0.32.0-1engine-k3.classic.txt", 1795203950.901428),
        ("vllm-0.32.0-1engine-k3-multiproc.classic.txt", None),
        ("vllm-0.32.0-1engine-k3.classic.txt.om-underscores", 1795203950.901428),
    ],
)
def test_vllm_is_read_alike_in_both_formats_both_spellings_and_multiprocess_mode(
    name: str, created: float | None
) -> None:
    engine = only(read(rendered(name)))
    assert engine.counters == Counters(
        drafts=4,
        draft_tokens=12,
        accepted_tokens=6,
        accepted_tokens_per_position=(3, 2, 1),
        generation_tokens=0,
        created=created,
    )
    assert (engine.key, engine.load) == (LLAMA, Load(3, 0, 0))


@pytest.mark.parametrize("prefix", DIALECT_NAMED["vllm-v1"].prefixes)
def test_of_ray_serve_no_sum_of_a_histogram_is_read(prefix: str) -> None:
    """Its agent makes them of the middles of buckets: 24 ms become 17.5."""
    text = rendered("vllm-0.32.0-1engine-k3-multiproc.classic.txt").decode()
    renamed = re.sub(r"(?m)^(# \w+ |)vllm:", rf"\g<1>{prefix}", text).encode()
    engine = only(read(renamed, latencies=True))
    assert engine.counters.drafts == 4
    assert engine.steps.step_observations is not None
    assert engine.latencies is not None
    is_rebuilt = prefix.startswith("ray_")
    assert (engine.steps.step_seconds is None) is is_rebuilt
    assert (engine.latencies.time_per_output_token is None) is is_rebuilt


class TestTensorRT:
    """Its answer is composed from the names in its source, not recorded."""

    TEXT = upstream("trtllm-k3.composed.txt").decode()

    def without(self, pattern: str) -> EngineReading:
        """Return what is read of it without the lines that begin like this."""
        return only(read(re.sub(rf"(?m)^{pattern}.*\n", "", self.TEXT).encode()))

    def test_a_position_without_a_count_is_0_and_k_is_the_servers_own(self) -> None:
        engine = self.without('.*token_position="[12]"')

        assert engine.counters == Counters(
            drafts=300,
            draft_tokens=300,
            accepted_tokens=240,
            accepted_tokens_per_position=(240, 0, 0),
            generation_tokens=863,
            drafted_tokens_per_position=(300,),
        )
        assert engine.drafting == Drafting(3, 4, None, "eagle3")

    def test_the_counters_of_iterations_are_divided_by_nothing(self) -> None:
        """Without those of finished requests nothing is known."""
        engine = self.without("trtllm_spec_decode_(?:drafted|accepted)_")

        assert engine.counters == Counters(generation_tokens=863)
        assert engine.uncounted.endswith("the server runs without return_perf_metrics")

    def test_without_a_draft_the_count_is_0_and_the_server_is_off(self) -> None:
        """The counters of finished requests are there, so it would count drafts."""
        engine = self.without("trtllm_spec")

        assert engine.counters == Counters(0, 0, 0, generation_tokens=863)
        assert engine.uncounted == ""
        assert not engine.shows_speculation

    @pytest.mark.parametrize(
        ("label", "invalid", "k", "verified"),
        [
            ('spec_num_tokens="3"', 'spec_num_tokens="-3"', None, None),
            ('spec_num_tokens="3"', 'spec_num_tokens="1e9"', None, None),
            ('spec_enabled="true"', 'spec_enabled="false"', 3, 0),
            (',spec_num_tokens="3"', "", None, None),
        ],
    )
    def test_what_the_server_says_of_its_configuration_is_read_with_care(
        self, label: str, invalid: str, k: float | None, verified: float | None
    ) -> None:
        text = self.TEXT.replace(label, invalid)
        drafting = only(read(text.encode())).drafting
        assert drafting.num_speculative_tokens == k
        assert drafting.verified_tokens == verified


class TestRecognition:
    def test_a_v0_counter_beside_the_drafts_counter_is_v1(self) -> None:
        """The counter of drafts exists in V1 alone, so whatever stands beside it, it is
        V1.
        """
        text = vllm_text(counters(10, [5])) + lines(
            'vllm:spec_decode_efficiency{engine="0",model_name="m"} 0.5'
        )

        assert read(text).dialect == "vllm-v1"

    @pytest.mark.parametrize("prefix", ["vllm:", "vllm_"])
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
    def test_any_series_that_only_v0_has_shows_v0_in_either_spelling(
        self, mark: str, prefix: str
    ) -> None:
        text = lines(f"{prefix}{mark} 0", f"{prefix}generation_tokens_total 7")
        assert read(text).dialect == "vllm-v0"

    def test_the_names_that_v0_shares_with_v1_are_not_counters_of_v0(self) -> None:
        """V0's counters add running totals, so that they are not read."""
        engine = engine_of(
            f"{ACCEPTED} 24730",
            f"{DRAFT_TOKENS} 39485",
            "vllm:spec_decode_num_emitted_tokens_total 20084",
            "vllm:num_requests_running 1",
        )
        assert engine.counters == Counters()

    def test_v0_before_its_first_draft(self) -> None:
        """V0's gauges are NaN before the first draft: they are there, their values are
        not.
        """
        engine = engine_of(
            "vllm:spec_decode_draft_acceptance_rate NaN",
            "vllm:spec_decode_efficiency NaN",
        )
        assert engine == EngineReading(EngineKey(), lifetime=Lifetime())

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "# EOF\n",
            "# TYPE go_goroutines gauge\ngo_goroutines 7\n",
            "<p>not found</p>\n",
            f"{DRAFTS}s 7\n",
            f"# TYPE {DRAFTS} counter\n",
        ],
    )
    def test_an_exposition_without_a_known_series_is_told_from_a_broken_one(
        self, text: str
    ) -> None:
        assert refusal(Unrecognized, read, text.encode()).startswith(
            "no series of a known server; is this the /metrics of a supported server"
        )

    @pytest.mark.parametrize("prefix", DIALECT_NAMED["vllm-v1"].prefixes)
    def test_prefixes_of_whoever_renames_vllms_series(self, prefix: str) -> None:
        """KServe on OpenShift and Ray Serve; rules and dashboards read the same."""
        rows = vllm_lines(counters(10, [5]), prefix=prefix, ReplicaId="r0")
        engine = engine_of(*rows)
        assert engine.key.engine == "ReplicaId=r0"
        assert engine.counters == only(read(vllm_text(counters(10, [5])))).counters

    def test_metrics_of_an_earlier_tensorrt_and_of_an_exporter_are_named(self) -> None:
        labelled = labels({"engine_type": "undefined", "model_name": "undefined"})
        earlier = lines(f"e2e_request_latency_seconds_count{labelled} 3")
        assert "an earlier TensorRT-LLM" in refusal(Unrecognized, read, earlier)
        exported = (DATA.parent / "golden" / "metrics.prom").read_bytes()
        assert "metrics of an exporter" in refusal(Unrecognized, read, exported)

    def test_drafts_positions_and_v0s_gauges_show_speculation(self) -> None:
        """Counters at 0 show nothing; positions at 0 do."""
        shows = {
            Counters(): False,
            Counters(0, 0, 0, generation_tokens=100): False,
            Counters(generation_tokens=100): False,
            Counters(1, 3, 0): True,
            Counters(0, 0, 0, (0, 0)): True,
        }
        for printed, shown in shows.items():
            engine = EngineReading(EngineKey(), printed)
            assert engine.shows_speculation is shown, printed
        assert EngineReading(EngineKey(), lifetime=Lifetime()).shows_speculation is True


class TestFormats:
    def test_an_openmetrics_text_needs_its_end_and_a_classic_one_has_none(self) -> None:
        """OpenMetrics leaves the line end behind its # EOF to the server."""
        body = vllm_text(counters(10, [5]))

        assert malformed(body, OPENMETRICS) == (
            "an OpenMetrics text without # EOF at the end: it was truncated"
        )
        classic = read(body, "text/plain; version=0.0.4; charset=utf-8")
        for ending in (b"# EOF", b"# EOF\r\n", b"# EOF\n"):
            assert read(body + ending, OPENMETRICS) == classic, ending

    @pytest.mark.parametrize(
        "page",
        [
            "<!DOCTYPE html>\n<html></html>\n",
            "<html>\n",
            "\n  <HTML lang='en'>\n",
            "<!doctype html><body>vllm:generation_tokens_total 1</body>\n",
        ],
    )
    def test_a_page_instead_of_metrics_is_named_as_what_it_is(self, page: str) -> None:
        """A login page or an error page."""
        assert malformed(page.encode()) == "an HTML page instead of metrics"

    def test_json_is_no_exposition(self) -> None:
        error = malformed(b'{"error": "not found"}')
        assert error.startswith("the text ends within a line: ")


@pytest.mark.parametrize(
    ("rows", "limit"),
    [
        ([f'{GENERATED}{{model_name="{"x" * 2000}"}} 1'], "label of more than"),
        ([f'{GENERATED}{{a="{"x" * 20000}"}} 1'], "selected lines"),
        (
            [f'{GENERATED}{{pid="{pid}"}} 1' for pid in range(MAX_LINES + 1)],
            "selected lines",
        ),
        (
            [f'{GENERATED}{{model_name="{"x" * 1000}{n}"}} 1' for n in range(200)],
            "characters of /metrics",
        ),
    ],
    ids=["model name", "label", "lines", "labels in all series"],
)
def test_a_hostile_answer_is_refused_early(rows: list[str], limit: str) -> None:
    """What no server prints is refused before it costs time or memory."""
    assert limit in malformed(lines(*rows))


class TestIdentity:
    @pytest.mark.parametrize(
        ("pairs", "key"),
        [
            ({}, EngineKey()),
            ({"engine": "3"}, EngineKey("", "3")),
            ({"model_name": "m", "zone": "", "pid": "77"}, EngineKey("m")),
            (
                {"engine": "0", "zone": "eu,x=1%", "at": "b"},
                EngineKey("", "0,at=b,zone=eu%2Cx%3D1%25"),
            ),
            ({"zone": "eu"}, EngineKey("", "zone=eu")),
        ],
    )
    def test_model_and_engine_identify(
        self, pairs: dict[str, str], key: EngineKey
    ) -> None:
        """Both may be missing.

        Any other label separates engines, unless it names a process of one.
        """
        assert engine_of(f"{DRAFTS}{labels(pairs)} 1").key == key

    @pytest.mark.parametrize("label", ["engine", "instance"])
    def test_an_endless_number_of_engines_is_refused(self, label: str) -> None:
        """They become label values. As many as a large deployment has are read."""
        rows = [f'{DRAFTS}{{{label}="{n}"}} 1' for n in range(MAX_ENGINES + 1)]

        assert len(read(lines(*rows[:-1])).engines) == MAX_ENGINES == 256
        error = f"more than 256 engines in one response, by {label}"
        assert malformed(lines(*rows)) == error


class TestMerging:
    """Series of one engine that differ in labels without meaning, such as `pid`."""

    def test_counts_add_up_and_what_is_no_count_does_not(self) -> None:
        """Of the same cache the largest share counts, of start times the newest."""
        engine = engine_of(
            f'{DRAFTS}{{engine="0",pid="7"}} 10',
            f'{DRAFTS}{{engine="0",pid="8"}} 5',
            f'{PER_POS}{{engine="0",position="0",pid="7"}} 4',
            f'{PER_POS}{{engine="0",position="0",pid="8"}} 3',
            'vllm:num_requests_running{engine="0",pid="7"} 1',
            'vllm:num_requests_running{engine="0",pid="8"} 2',
            'vllm:kv_cache_usage_perc{engine="0",pid="3"} 0.3',
            'vllm:kv_cache_usage_perc{engine="0",pid="6"} 0.6',
            'vllm:kv_cache_usage_perc{engine="0",pid="4"} 0.4',
            'vllm:spec_decode_num_drafts_created{engine="0",pid="1"} 1.7e9',
            'vllm:spec_decode_num_drafts_created{engine="0",pid="2"} 1700000005',
        )
        assert engine.counters == Counters(
            15, accepted_tokens_per_position=(7,), created=1.7e9 + 5
        )
        assert engine.load == Load(requests_running=3, kv_cache_usage_ratio=0.6)

    @pytest.mark.parametrize(
        ("rows", "usage"),
        [
            ([f"{OLD_USAGE} 0.25", f"{USAGE} 0.5"], 0.5),
            ([f"{USAGE} 0.5", f"{OLD_USAGE} 0.25"], 0.5),
            ([f"{OLD_USAGE} 0.25"], 0.25),
            ([f"{USAGE} NaN", f"{OLD_USAGE} 0.25"], 0.25),
        ],
    )
    def test_two_names_of_the_cache_usage_are_one_value(
        self, rows: list[str], usage: float
    ) -> None:
        """The present name is read where it has a value, in any order, else the old
        one.
        """
        assert engine_of(*rows).load == Load(kv_cache_usage_ratio=usage)


class TestBadValues:
    @pytest.mark.parametrize(
        "row",
        [
            f"{DRAFTS} -1",
            f"{DRAFT_TOKENS} -1",
            f"{ACCEPTED} -1",
            f'{PER_POS}{{position="0"}} -1',
            f"{GENERATED} -1",
            "vllm:spec_decode_num_drafts_created -1",
            f"{DRAFTS} NaN",
            f"{DRAFTS} +Inf",
            f"{DRAFTS} -Inf",
            f"{DRAFTS} -0.5",
            f"{DRAFTS} 1e999",
            f"{DRAFTS} 1.1e18",
        ],
    )
    def test_a_counter_that_no_server_can_have_makes_the_answer_untrustworthy(
        self, row: str
    ) -> None:
        """Negative, no number, or more than any server can count."""
        error = malformed(lines(row, "vllm:num_requests_running 1"))
        assert error.endswith("a counter must be from 0 to 1e+18")

    def test_a_count_is_believed_up_to_the_limit(self) -> None:
        assert engine_of(f"{DRAFTS} 1e18").counters == Counters(drafts=1e18)

    @pytest.mark.parametrize(
        ("name", "value", "shown"),
        [
            ("vllm:num_requests_running", "-1", "-1.0"),
            ("vllm:num_requests_waiting", "NaN", "nan"),
            ("vllm:kv_cache_usage_perc", "-Inf", "-inf"),
            ("vllm:kv_cache_usage_perc", "+Inf", "inf"),
            ("vllm:kv_cache_usage_perc", "55", "55.0"),
            ("vllm:num_requests_running", "1e19", "1e+19"),
        ],
    )
    def test_a_gauge_without_a_usable_value_is_left_out_and_said_to_be(
        self, name: str, value: str, shown: str
    ) -> None:
        """The rest is read."""
        assert engine_of(f"{name} {value}", f"{DRAFTS} 7") == EngineReading(
            EngineKey(), Counters(drafts=7), defects=(f"{name} is {shown}",)
        )

    def test_a_series_that_occurs_twice_is_refused(self) -> None:
        """In whatever order of labels: neither can be believed."""
        first = f'{DRAFTS}{{engine="0",model_name="m"}}'
        for again in (f"{first} 7", f'{DRAFTS}{{ model_name = "m", engine="0", }} 8'):
            error = malformed(lines(f"{first} 7", again))
            assert error == f"duplicate series {first}", again

    @pytest.mark.parametrize(
        "name", ["spec_decode_num_drafts_total", "num_requests_running"]
    )
    def test_a_series_in_both_spellings_is_it_twice(self, name: str) -> None:
        """`vllm:x` and `vllm_x` are one series."""
        spellings = (f'vllm:{name}{{engine="0"}}', f'vllm_{name}{{engine="0"}}')
        for first, second in permutations(spellings):
            error = malformed(lines(f"{first} 7", f"{second} 7"))
            assert error == f"duplicate series {second}", first

    def test_different_series_may_be_spelled_differently(self) -> None:
        engine = engine_of(f"{DRAFTS} 7", "vllm_generation_tokens_total 9")
        assert engine.counters == Counters(drafts=7, generation_tokens=9)


class TestPositions:
    @pytest.mark.parametrize(
        "position",
        ["-1", "1.5", "256", "1000", "", "x", " 1", "+1", "1e0", "1_0", "²", "٣"],
    )
    def test_a_position_is_a_small_whole_number(self, position: str) -> None:
        """Anything else breaks the answer."""
        series = f'{PER_POS}{{position="{position}"}}'
        error = malformed(lines(f"{series} 1", f"{DRAFTS} 1"))
        assert error == f"{series} has no valid position label"

    def test_a_count_per_position_needs_its_position(self) -> None:
        error = malformed(lines(f"{PER_POS} 1"))
        assert error == f"{PER_POS}{{}} has no valid position label"

    def test_as_many_positions_as_any_drafter_has_in_any_order(self) -> None:
        """The Rust front end prints them in arbitrary order."""
        order = (2, *range(3, MAX_POSITIONS), 0, 1)
        engine = engine_of(*(f'{PER_POS}{{position="{i}"}} {i}' for i in order))
        assert engine.counters.accepted_tokens_per_position == tuple(range(256))

    def test_too_many_positions_of_all_engines_are_ignored(self) -> None:
        """Each becomes several series; the other counters are read."""
        rows = []
        for number in range(MAX_ALL_POSITIONS):
            engine, position = divmod(number, 64)
            series = labels({"engine": str(engine), "position": str(position)})
            rows.append(f"{PER_POS}{series} 5")
        read_engines = read(lines(*rows)).engines
        kept = {e.counters.accepted_tokens_per_position for e in read_engines}
        assert kept == {(5,) * 64}
        rows += [f"{DRAFTS} 10", f'{PER_POS}{{position="0"}} 5']
        more = read(lines(*rows)).engines[0]
        assert more.counters == Counters(drafts=10)
        assert more.defects == (
            "more than 2048 positions in one response: per-position values ignored",
        )

    @pytest.mark.parametrize(
        ("positions", "shown"), [((0, 2), "0, 2"), ((1, 2, 3), "1, 2, 3")]
    )
    def test_positions_with_gaps_are_ignored_as_a_whole(
        self, positions: tuple[int, ...], shown: str
    ) -> None:
        """And said to be: none is guessed."""
        rows = [f'{PER_POS}{{position="{position}"}} 5' for position in positions]
        defect = f"positions with gaps ({shown}): per-position values ignored"
        assert engine_of(f"{DRAFTS} 10", *rows) == EngineReading(
            EngineKey(), Counters(drafts=10), defects=(defect,)
        )

    def test_accepted_tokens_must_have_been_accepted_somewhere(self) -> None:
        """A server that has not drafted yet need not have positions."""
        inconsistent = engine_of(f"{DRAFTS} 5", f"{ACCEPTED} 5")
        defect = "accepted tokens without any per-position series"
        assert inconsistent.defects == (defect,)
        assert engine_of(f"{DRAFTS} 0", f"{ACCEPTED} 0").defects == ()
