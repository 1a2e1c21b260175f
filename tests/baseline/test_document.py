"""The baseline file: what is written is read again, and what cannot be used is refused in one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.recordings import baseline, bucket, histogram, record, samples
from vllm_specdec_exporter.baseline import Baseline, BaselineError, LoadBucket, decode, encode, load
from vllm_specdec_exporter.baseline.document import FORMAT
from vllm_specdec_exporter.reading import Latencies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = baseline(bucket(1.0, 0.05, 0.15), bucket(3.5, 0.15, 0.3))


def changed(change: Callable[[Any], None]) -> bytes:
    """The good file with one thing changed."""
    document = json.loads(encode(GOOD))
    change(document)
    return json.dumps(document).encode()


class TestRoundTrip:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        """A file holds all of a baseline."""
        path = tmp_path / "baseline.json"
        path.write_bytes(encode(GOOD))

        assert load(str(path)) == GOOD

    @given(
        st.lists(st.lists(st.floats(0, 5), min_size=1, max_size=5), min_size=1, max_size=5),
        st.text(max_size=10).filter(lambda text: text.isprintable()),
    )
    def test_any_baseline(self, observations: list[list[float]], model: str) -> None:
        """Whatever was recorded comes back, names with any letters included."""
        found = baseline(*(bucket(i + 1.5, *row) for i, row in enumerate(observations)), model=model)

        assert decode(encode(found)) == found

    def test_a_recorded_server(self) -> None:
        """What a real server gave comes back."""
        found = Baseline(
            FORMAT,
            "tiny-llama",
            "0.32.0",
            "vllm-v1",
            "2026-11-20T12:00:00Z",
            record(samples("nospec")).buckets(),
        )

        assert decode(encode(found)) == found

    def test_people_can_read_it(self) -> None:
        """The file is indented JSON that says what it is, and ends with a line end."""
        text = encode(GOOD).decode()

        assert text.endswith("}\n")
        assert '\n "format": "vllm-specdec-baseline/1",' in text


class TestRefused:
    @pytest.mark.parametrize("body", [b"", b"{", b"\xff\xff", b"# HELP x\n", b"[" * 100_000])
    def test_no_json(self, body: bytes) -> None:
        """A file that is no JSON is refused in one line."""
        with pytest.raises(BaselineError, match=r"^not JSON: [^\n]*$"):
            decode(body)

    @pytest.mark.parametrize(
        ("document", "shown"),
        [
            ([], "null"),
            ({}, "null"),
            (5, "null"),
            ({"format": "vllm-specdec-baseline/2"}, '"vllm-specdec-baseline/2"'),
            ({"format": "other"}, '"other"'),
            ({"format": 1}, "1"),
        ],
    )
    def test_another_format(self, document: object, shown: str) -> None:
        """A file of another kind or of a later version is refused with both formats named."""
        with pytest.raises(BaselineError) as raised:
            decode(json.dumps(document).encode())

        assert (
            str(raised.value)
            == f"its format is {shown}, and this exporter reads vllm-specdec-baseline/1: record it anew"
        )

    @pytest.mark.parametrize("key", ["model_name", "upstream_version", "dialect", "recorded_at", "buckets"])
    def test_a_missing_part(self, key: str) -> None:
        """A part that is missing is named."""
        with pytest.raises(BaselineError, match=rf"^not a baseline: [^\n]*`{key}`[^\n]*$"):
            decode(changed(lambda document: document.pop(key)))

    @pytest.mark.parametrize(
        ("key", "value"), [("model_name", 5), ("buckets", {}), ("buckets", [5]), ("recorded_at", None)]
    )
    def test_another_type(self, key: str, value: object) -> None:
        """A value of another type is refused with its place."""
        with pytest.raises(BaselineError, match=rf"^not a baseline: [^\n]*\$\.{key}[^\n]*$"):
            decode(changed(lambda document: document.update({key: value})))

    def test_nothing_recorded(self) -> None:
        """A file without a time per output token is of no use."""
        message = "^no load bucket holds a time per output token: nothing was recorded$"
        nothing = LoadBucket(1.0, 10.0, 100.0, 0.0, Latencies(end_to_end=histogram(0.3)))
        for empty in (baseline(), baseline(nothing)):
            with pytest.raises(BaselineError, match=message):
                decode(encode(empty))

    @pytest.mark.parametrize(
        "loads", [[0.5, 2.0], [2.0, 1.0], [2.0, 2.0], [0.0, 1.0], [float("nan")], [1.0, float("inf")]]
    )
    def test_loads_that_do_not_rise(self, loads: list[float]) -> None:
        """Loads rise from 1 up, and are numbers."""

        def change(document: Any) -> None:
            del document["buckets"][len(loads) :]
            for entry, running in zip(document["buckets"], loads, strict=True):
                entry["requests_running"] = running

        with pytest.raises(BaselineError, match=r"^its loads do not rise from 1 up: [^\n]*$"):
            decode(changed(change))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("seconds", 0),
            ("seconds", -1),
            ("seconds", float("nan")),
            ("generation_tokens", -1),
            ("generation_tokens", float("inf")),
            ("requests", float("nan")),
        ],
    )
    def test_impossible_values(self, key: str, value: float) -> None:
        """Times and amounts are finite and not negative, and a bucket lasted some time."""
        with pytest.raises(BaselineError, match=r"^impossible values at 3\.5 running requests$"):
            decode(changed(lambda document: document["buckets"][1].update({key: value})))

    @pytest.mark.parametrize(
        "parts",
        [
            {"counts": [1, 2, 2]},
            {"counts": [2, 1, 2, 2]},
            {"counts": [-1, 1, 2, 2]},
            {"counts": [0, 1, 2, 9]},
            {"bounds": [0.1, 0.4, 0.2, 0.8]},
            {"bounds": [0.1, 0.1, 0.2, 0.8]},
            {"sum": -1},
            {"sum": float("nan")},
            {"sum": float("inf")},
            {"count": float("inf")},
            {"bounds": [float("nan")], "counts": [2]},
            {"bounds": [float("inf")], "counts": [2]},
        ],
        ids=str,
    )
    def test_what_is_no_histogram(self, parts: dict[str, Any]) -> None:
        """Bounds rise, counts do not fall, and the rest is finite."""

        def change(document: Any) -> None:
            del document["buckets"][0]
            document["buckets"][0]["latencies"]["time_per_output_token"].update(parts)

        with pytest.raises(
            BaselineError, match=r"^time_per_output_token at 3\.5 running requests is no histogram$"
        ):
            decode(changed(change))

    def test_histograms_with_different_bounds(self) -> None:
        """Histograms of different servers cannot be laid beside each other."""

        def change(document: Any) -> None:
            document["buckets"][1]["latencies"]["time_per_output_token"]["bounds"] = [1, 2, 3, 4]

        with pytest.raises(
            BaselineError, match=r"^the buckets of time_per_output_token have different bounds$"
        ):
            decode(changed(change))

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """A file that cannot be read is refused with the reason."""
        with pytest.raises(BaselineError, match=r"^cannot be read: No such file or directory$"):
            load(str(tmp_path / "none.json"))
        with pytest.raises(BaselineError, match=r"^cannot be read: Is a directory$"):
            load(str(tmp_path))


class TestFit:
    @pytest.mark.parametrize(
        ("mine", "theirs"),
        [
            ("0.32.0", "0.32.0"),
            ("0.32.0", "0.32.9"),
            ("0.32.1+cpu", "0.32.0.dev5"),
            ("", "0.32.0"),
            ("0.32.0", ""),
            ("", ""),
        ],
    )
    def test_of_the_same_release(self, mine: str, theirs: str) -> None:
        """Patch releases and builds may differ, and what is not known is no reason to refuse."""
        assert baseline(bucket(1, 0.1), version=mine).why_not("m", theirs) == ""

    @pytest.mark.parametrize(("mine", "theirs"), [("0.32.0", "0.33.0"), ("0.32.0", "1.32.0")])
    def test_of_another_release(self, mine: str, theirs: str) -> None:
        """Another release is another server, and the message names both."""
        found = baseline(bucket(1, 0.1), version=mine).why_not("m", theirs)

        assert found == f"the baseline is of version {mine}, and this server has {theirs}: record a new one"

    def test_of_another_model(self) -> None:
        """Another model is another server, and the message says what to do."""
        found = baseline(bucket(1, 0.1)).why_not("other", "0.32.0")

        assert found == (
            "the baseline is of model 'm', and this server serves 'other': "
            "record one for it, or set model_name in the file if it is the same model"
        )


class TestLoad:
    FOUND = baseline(bucket(1.0, 0.1), bucket(3.0, 0.1), bucket(40.0, 0.1))

    @pytest.mark.parametrize(
        ("load", "expected"),
        [
            (1.0, [(1.0, 1.0), (0.0, 3.0)]),
            (1.5, [(0.75, 1.0), (0.25, 3.0)]),
            (2.0, [(0.5, 1.0), (0.5, 3.0)]),
            (0.2, [(1.0, 1.0), (0.0, 3.0)]),  # a request is at least one
            (3.0, [(1.0, 3.0)]),
            (3.75, [(1.0, 3.0)]),
            (3.76, []),  # between 3 and 40 nothing is known
            (31.9, []),
            (32.0, [(1.0, 40.0)]),
            (40.0, [(1.0, 40.0)]),
            (50.0, [(1.0, 40.0)]),
            (50.1, []),
            (1000.0, []),
        ],
    )
    def test_what_to_compare_with(self, load: float, expected: list[tuple[float, float]]) -> None:
        """Between two near loads both count; near one of them it alone; elsewhere nothing is guessed."""
        found = [(weight, bucket.requests_running) for weight, bucket in self.FOUND.at(load)]

        assert found == [(pytest.approx(weight), running) for weight, running in expected]

    @given(st.floats(1, 2000))
    def test_weights_add_up(self, load: float) -> None:
        """The weights are shares of one."""
        weights = [weight for weight, _ in self.FOUND.at(load)]

        assert not weights or sum(weights) == pytest.approx(1)
        assert all(0 <= weight <= 1 for weight in weights)

    def test_a_single_bucket(self) -> None:
        """One load is known within a quarter as much again, either way."""
        found = baseline(bucket(8.0, 0.1))

        assert [bool(found.at(load)) for load in (6.3, 6.4, 8, 10, 10.1)] == [False, True, True, True, False]


def test_a_load_that_it_lacks_is_told_with_those_that_it_has() -> None:
    """Whoever gives a baseline and gets nothing measured learns which load to record."""
    found = baseline(bucket(1.0), bucket(20.0))

    assert found.why_nothing(1.2) == ""
    assert found.why_nothing(8.0) == (
        "the baseline has nothing near 8.0 running requests (it has 1.0, 20.0): "
        "record that load as well, with --append"
    )
