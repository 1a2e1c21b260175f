"""Samples of any time into a running Prometheus: its remote-write protocol, in as few
lines as that takes.

See the remote write specification 1.0 (protobuf in snappy's block format, of which only
literals are used).
"""

import urllib.request
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dashboards.worlds_traffic import Key, Samples

#: What a Prometheus needs to take samples of the past, in any order.
CONFIG = {"storage": {"tsdb": {"out_of_order_time_window": "60h"}}}
FLAGS = ("--web.enable-remote-write-receiver",)

_SAMPLE = np.dtype([("head", "u1", 3), ("value", "<u8"), ("time", "u1", 7)])
#: Field 2 of 16 bytes; in it field 1, a double, and field 2, a varint of 6 bytes.
_HEAD = (0x12, 16, 0x09)
_TIME = 0x10
#: What Prometheus stores where a series ends: a NaN of its own (model/value/value.go).
_STALE = np.uint64(0x7FF0000000000002)
#: Seconds that are written at a time, so that samples come in their order, but for what
#: is added later.
_SLICE = 1800.0


def push(
    url: str,
    times: Samples,
    series: Mapping[Key, Samples],
    *,
    markers: bool = True,
) -> None:
    """Write series, whose samples are at these Unix times, NaN where there is none.

    Where a series ends it gets a staleness marker, as in a scrape or an evaluation that
    lacks it, if it may.
    """
    stamps = _varints((times * 1000).round().astype(np.int64))
    heads = {key: _head(key) for key in series}
    slices = np.searchsorted(times, np.arange(times[0], times[-1] + _SLICE, _SLICE))
    for start, end in pairwise([*slices.tolist(), len(times)]):
        body = bytearray()
        for key, rows in series.items():
            samples = _samples(stamps, rows, start=start, end=end, markers=markers)
            if samples:
                body += _field(1, heads[key] + samples)
        if body:
            _post(url, bytes(body))


def _head(key: Key) -> bytes:
    name, labels = key
    pairs = sorted((("__name__", name), *labels))
    return b"".join(
        _field(1, _field(1, k.encode()) + _field(2, v.encode())) for k, v in pairs
    )


def _samples(
    stamps: NDArray[np.uint8],
    rows: Samples,
    start: int,
    end: int,
    markers: bool,
) -> bytes:
    missing = np.isnan(rows[start:end])
    was_missing = np.isnan(rows[start - 1]) if start else True
    ends = missing & ~np.concatenate(([was_missing], missing[:-1]))
    there = ~missing | ends if markers else ~missing
    samples = np.zeros(int(there.sum()), _SAMPLE)
    samples["head"] = _HEAD
    samples["value"] = np.where(ends, _STALE, rows[start:end].view(np.uint64))[there]
    samples["time"][:, 0], samples["time"][:, 1:] = _TIME, stamps[start:end][there]
    return samples.tobytes()


def _varints(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return numbers of 36 to 42 bits, as times of this century in milliseconds are, as
    varints.
    """
    parts = np.stack([(numbers >> (7 * index)) & 0x7F for index in range(6)], axis=1)
    parts[:, :5] |= 0x80
    return parts.astype(np.uint8)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _post(url: str, body: bytes) -> None:
    literal = bytes([63 << 2]) + (len(body) - 1).to_bytes(4, "little") + body
    request = urllib.request.Request(
        f"{url}/api/v1/write",
        data=_varint(len(body)) + literal,
        headers={
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
        },
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
