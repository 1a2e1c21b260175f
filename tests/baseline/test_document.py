"""The baseline file: what is written is read again, and what cannot be used is refused
in one line.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline.recordings import baseline, bucket, histogram
from support.builders import refusal
from vllm_specdec_exporter.economics.baseline import (
    BaselineError,
    LoadBucket,
    decode,
    encode,
)
from vllm_specdec_exporter.engines.reading import Latencies

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
    recording = baseline(
        *(bucket(i + 1.5, *row) for i, row in enumerate(observations)), model=model
    )

    assert decode(encode(recording)) == recording


def with_bucket(**values: Any) -> bytes:
    """The good file with other values in its second bucket."""
    return changed(lambda document: document["buckets"][1].update(values))


def with_loads(*loads: float) -> bytes:
    """The good file with other loads."""

    def change(document: Any) -> None:
        del document["buckets"][len(loads) :]
        for entry, running in zip(document["buckets"], loads, strict=True):
            entry["requests_running"] = running

    return changed(change)


def with_histogram(**parts: Any) -> bytes:
    """The good file with other parts in the histogram of its second bucket."""
    return changed(
        lambda d: d["buckets"][1]["latencies"]["time_per_output_token"].update(parts)
    )


NAN = float("nan")
INF = float("inf")
NOTHING = LoadBucket(
    1.0,
    seconds=10.0,
    generation_tokens=100.0,
    requests=0.0,
    latencies=Latencies(end_to_end=histogram(0.3)),
)
NO_FORMAT = (
    "its format is null, and this exporter reads vllm-specdec-baseline/1: record it "
    "anew"
)
EMPTY = "no load bucket holds a time per output token: nothing was recorded"
NO_HISTOGRAM = "time_per_output_token at 3.5 running requests is no histogram"
#: The beginnings of reasons, and files that are refused for them.
REFUSED: list[tuple[str, bytes]] = [
    ("not JSON: ", b""),
    ("not JSON: ", b"\xff\xff"),
    ("not JSON: ", b"# HELP x\n"),
    ("not JSON: ", b"[" * 100_000),
    (NO_FORMAT, b"[]"),
    (NO_FORMAT, b"{}"),
    (NO_FORMAT, b"5"),
    (
        'its format is "vllm-specdec-baseline/2", and this exporter',
        b'{"format": "vllm-specdec-baseline/2"}',
    ),
    ("its format is 1, and this exporter", b'{"format": 1}'),
    ("not a baseline: Expected `str", changed(lambda d: d.update(model_name=5))),
    ("not a baseline: Expected `str", changed(lambda d: d.update(recorded_at=None))),
    ("not a baseline: Expected `array", changed(lambda d: d.update(buckets={}))),
    ("not a baseline: Expected `object", changed(lambda d: d.update(buckets=[5]))),
    (EMPTY, encode(baseline())),
    (EMPTY, encode(baseline(NOTHING))),
    ("its loads do not rise: [2.0, 1.0]", with_loads(2.0, 1.0)),
    ("its loads do not rise: [2.0, 2.0]", with_loads(2.0, 2.0)),
    ("the buckets of time_per_output_token have", with_histogram(bounds=[1, 2, 3, 4])),
]
for key in ("model_name", "upstream_version", "dialect", "recorded_at", "buckets"):
    missing = f"not a baseline: Object missing required field `{key}`"
    without = changed(lambda d, key=key: d.pop(key))
    REFUSED.append((missing, without))
#: Values of the second bucket that are less than they can be.
for field, low in (
    ("requests_running", 0.5),
    ("seconds", 0),
    ("seconds", -1),
    ("generation_tokens", -1),
    ("requests", -1),
    ("blocks", [[1, -0.1]]),
):
    REFUSED.append(("not a baseline: Expected `float` >", with_bucket(**{field: low})))
for number in (NAN, INF):
    REFUSED += [
        ("not JSON: ", with_bucket(seconds=number)),
        ("not JSON: ", with_histogram(sum=number)),
    ]
NO_HISTOGRAMS: list[dict[str, Any]] = [
    {"counts": [1, 2, 2]},
    {"counts": [2, 1, 2, 2]},
    {"counts": [-1, 1, 2, 2]},
    {"counts": [0, 1, 2, 9]},
    {"bounds": [0.1, 0.4, 0.2, 0.8]},
    {"bounds": [0.1, 0.1, 0.2, 0.8]},
    {"bounds": [-0.1, 0.1, 0.2, 0.8]},
    {"sum": -1},
]
REFUSED += [(NO_HISTOGRAM, with_histogram(**parts)) for parts in NO_HISTOGRAMS]


@pytest.mark.parametrize(("why", "body"), REFUSED)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    why: str, body: bytes
) -> None:
    reason = refusal(BaselineError, decode, body)
    assert reason.startswith(why)
    assert "\n" not in reason


def test_a_file_of_an_older_version_has_no_blocks() -> None:
    assert (
        decode(
            changed(
                lambda d: [with_blocks.pop("blocks") for with_blocks in d["buckets"]]
            )
        )
        == GOOD
    )


class TestFit:
    @pytest.mark.parametrize(
        ("recorded", "served"),
        [
            ("0.32.0", "0.32.9"),
            ("0.32.1+cpu", "0.32.0.dev5"),
            ("", "0.32.0"),
            ("0.32.0", ""),
            ("", ""),
        ],
    )
    def test_of_the_same_release(self, recorded: str, served: str) -> None:
        """Patch releases and builds may differ, and what is not known is no reason to
        refuse.
        """
        assert baseline(bucket(1, 0.1), version=recorded).why_not("m", served) == ""

    @pytest.mark.parametrize("served", ["0.33.0", "1.32.0"])
    def test_of_another_release(self, served: str) -> None:
        assert baseline(bucket(1, 0.1)).why_not("m", served) == (
            f"the baseline is of version 0.32.0, and this server has {served}: "
            "record a new one"
        )

    def test_of_another_model(self) -> None:
        assert baseline(bucket(1, 0.1)).why_not("other", "0.32.0") == (
            "the baseline is of model 'm', and this server serves 'other': "
            "record one for it, or set model_name in the file if it is the same model"
        )


FOUND = baseline(bucket(1.0, 0.1), bucket(3.0, 0.1), bucket(40.0, 0.1))


def test_what_to_compare_with() -> None:
    """Between two near loads both count; near one of them it alone; elsewhere nothing
    is guessed.
    """
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
    recording = {
        load: [(w, b.requests_running) for w, b in FOUND.at(load)] for load in expected
    }

    assert recording == {
        load: [(pytest.approx(w), r) for w, r in row] for load, row in expected.items()
    }


def test_a_load_that_it_lacks_is_told_with_those_that_it_has() -> None:
    """Who gives a baseline and gets nothing measured learns which load to record."""
    recording = baseline(bucket(1.0), bucket(20.0))

    assert recording.why_nothing(1.2) == ""
    assert recording.why_nothing(8.0) == (
        "the baseline has nothing near 8.0 running requests (it has 1.0, 20.0): "
        "record that load as well, with --append"
    )
