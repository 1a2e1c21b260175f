"""The baseline file: what is written is read again, and what cannot be used is refused in one line."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.recordings import baseline, bucket, histogram
from vllm_specdec_exporter.economics.baseline import (
    BaselineError,
    LoadBucket,
    decode,
    encode,
)
from vllm_specdec_exporter.engines.reading import Latencies
from vllm_specdec_exporter.serve.configuration import load_baseline as load

GOOD = baseline(bucket(1.0, 0.05, 0.15), bucket(3.5, 0.15, 0.3))


def changed(change: Callable[[Any], None]) -> bytes:
    """The good file with one thing changed."""
    document = json.loads(encode(GOOD))
    change(document)
    return json.dumps(document).encode()


@given(
    st.lists(st.lists(st.floats(0, 5), min_size=1, max_size=5), min_size=1, max_size=5),
    st.text(max_size=10).filter(lambda text: text.isprintable()),
)
def test_any_baseline(observations: list[list[float]], model: str) -> None:
    """Whatever was recorded comes back, names with any letters included."""
    found = baseline(*(bucket(i + 1.5, *row) for i, row in enumerate(observations)), model=model)

    assert decode(encode(found)) == found


def refusal(body: bytes) -> str:
    """Why a file is refused, in one line."""
    with pytest.raises(BaselineError) as raised:
        decode(body)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def with_loads(*loads: float) -> bytes:
    """The good file with other loads."""

    def change(document: Any) -> None:
        del document["buckets"][len(loads) :]
        for entry, running in zip(document["buckets"], loads, strict=True):
            entry["requests_running"] = running

    return changed(change)


def with_histogram(**parts: Any) -> bytes:
    """The good file with one bucket, and other parts in its histogram."""

    def change(document: Any) -> None:
        del document["buckets"][0]
        document["buckets"][0]["latencies"]["time_per_output_token"].update(parts)

    return changed(change)


NAN, INF = float("nan"), float("inf")


class TestRefused:
    def test_no_json(self) -> None:
        """A file that is no JSON, or that cannot be read, is refused in one line."""
        for body in (b"", b"\xff\xff", b"# HELP x\n", b"[" * 100_000):
            assert refusal(body).startswith("not JSON: ")
        with pytest.raises(BaselineError, match=r"^cannot be read: Is a directory$"):
            load("/")

    def test_another_format(self) -> None:
        """A file of another kind or of a later version is refused with both formats named."""
        for document, shown in (
            ([], "null"),
            ({}, "null"),
            (5, "null"),
            ({"format": "vllm-specdec-baseline/2"}, '"vllm-specdec-baseline/2"'),
            ({"format": 1}, "1"),
        ):
            assert refusal(json.dumps(document).encode()) == (
                f"its format is {shown}, and this exporter reads vllm-specdec-baseline/1: record it anew"
            )

    def test_a_missing_part_or_another_type(self) -> None:
        """The part is named, or the place of the value."""
        for key in ("model_name", "upstream_version", "dialect", "recorded_at", "buckets"):
            told = refusal(changed(lambda document, key=key: document.pop(key)))
            assert told.startswith("not a baseline: ")
            assert f"`{key}`" in told
        for key, value in (("model_name", 5), ("buckets", {}), ("buckets", [5]), ("recorded_at", None)):
            told = refusal(changed(lambda document, new={key: value}: document.update(new)))
            assert told.startswith("not a baseline: ")
            assert f"$.{key}" in told

    def test_nothing_recorded(self) -> None:
        """A file without a time per output token is of no use."""
        nothing = LoadBucket(1.0, 10.0, 100.0, 0.0, Latencies(end_to_end=histogram(0.3)))
        for empty in (baseline(), baseline(nothing)):
            assert refusal(encode(empty)) == (
                "no load bucket holds a time per output token: nothing was recorded"
            )

    def test_loads_that_do_not_rise(self) -> None:
        """Loads rise from 1 up, and are numbers."""
        for loads in ((0.5, 2.0), (2.0, 1.0), (2.0, 2.0), (0.0, 1.0), (NAN,), (1.0, INF)):
            assert refusal(with_loads(*loads)).startswith("its loads do not rise from 1 up: "), loads

    def test_impossible_values(self) -> None:
        """Times and amounts are finite and not negative, and a bucket lasted some time."""
        values = {"seconds": (0, -1, NAN), "generation_tokens": (-1, INF), "requests": (NAN,)}
        for new in ({key: value} for key, row in values.items() for value in row):
            told = refusal(changed(lambda document, new=new: document["buckets"][1].update(new)))
            assert told == "impossible values at 3.5 running requests", new

    def test_what_is_no_histogram(self) -> None:
        """Bounds rise, counts do not fall, and the rest is finite."""
        for parts in (
            {"counts": [1, 2, 2]},
            {"counts": [2, 1, 2, 2]},
            *({"counts": counts} for counts in ([-1, 1, 2, 2], [0, 1, 2, 9])),
            *({"bounds": bounds} for bounds in ([0.1, 0.4, 0.2, 0.8], [0.1, 0.1, 0.2, 0.8])),
            *({"sum": bad} for bad in (-1, NAN, INF)),
            {"count": INF},
            *({"bounds": [bad], "counts": [2]} for bad in (NAN, INF)),
        ):
            told = refusal(with_histogram(**parts))  # type: ignore[arg-type]
            assert told == "time_per_output_token at 3.5 running requests is no histogram", parts

    def test_histograms_with_different_bounds(self) -> None:
        """Histograms of different servers cannot be laid beside each other."""

        def change(document: Any) -> None:
            document["buckets"][1]["latencies"]["time_per_output_token"]["bounds"] = [1, 2, 3, 4]

        assert refusal(changed(change)) == "the buckets of time_per_output_token have different bounds"


class TestFit:
    def test_of_the_same_release(self) -> None:
        """Patch releases and builds may differ, and what is not known is no reason to refuse."""
        same = [("0.32.0", "0.32.9"), ("0.32.1+cpu", "0.32.0.dev5"), ("", "0.32.0"), ("0.32.0", ""), ("", "")]
        for mine, theirs in same:
            assert baseline(bucket(1, 0.1), version=mine).why_not("m", theirs) == ""

    def test_of_another_release_or_model(self) -> None:
        """It is another server; the message names both, and says what to do."""
        found = baseline(bucket(1, 0.1))
        for theirs in ("0.33.0", "1.32.0"):
            assert found.why_not("m", theirs) == (
                f"the baseline is of version 0.32.0, and this server has {theirs}: record a new one"
            )
        assert found.why_not("other", "0.32.0") == (
            "the baseline is of model 'm', and this server serves 'other': "
            "record one for it, or set model_name in the file if it is the same model"
        )


FOUND = baseline(bucket(1.0, 0.1), bucket(3.0, 0.1), bucket(40.0, 0.1))


def test_what_to_compare_with() -> None:
    """Between two near loads both count; near one of them it alone; elsewhere nothing is guessed."""
    expected = {
        1.0: [(1.0, 1.0), (0.0, 3.0)],
        1.5: [(0.75, 1.0), (0.25, 3.0)],
        2.0: [(0.5, 1.0), (0.5, 3.0)],
        0.2: [(1.0, 1.0), (0.0, 3.0)],  # a request is at least one
        3.0: [(1.0, 3.0)],
        3.75: [(1.0, 3.0)],
        3.76: [],  # between 3 and 40 nothing is known
        31.9: [],
        32.0: [(1.0, 40.0)],
        40.0: [(1.0, 40.0)],
        50.0: [(1.0, 40.0)],
        50.1: [],
        1000.0: [],
    }
    found = {load: [(w, b.requests_running) for w, b in FOUND.at(load)] for load in expected}

    assert found == {load: [(pytest.approx(w), r) for w, r in row] for load, row in expected.items()}


def test_a_load_that_it_lacks_is_told_with_those_that_it_has() -> None:
    """Whoever gives a baseline and gets nothing measured learns which load to record."""
    found = baseline(bucket(1.0), bucket(20.0))

    assert found.why_nothing(1.2) == ""
    assert found.why_nothing(8.0) == (
        "the baseline has nothing near 8.0 running requests (it has 1.0, 20.0): "
        "record that load as well, with --append"
    )
