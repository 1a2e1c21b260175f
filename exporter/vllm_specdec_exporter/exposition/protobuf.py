"""The Prometheus protobuf exposition format: encoding, and negotiation by the Accept header.

A message is the concatenation of its fields, in any order.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import BucketSpan, NativeHistogram, Sample


_VARINT, _FIXED64, _DELIMITED = 0, 1, 2
_DOUBLE = struct.Struct("<d").pack


def varint(number: int) -> bytes:
    """Return a number of at least 0, seven bits per byte."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def unsigned(field: int, number: int) -> bytes:
    """Return a field of type uint32, uint64 or enum."""
    return varint(field << 3 | _VARINT) + varint(number)


def integer(field: int, number: int) -> bytes:
    """Return a field of type int32 or int64: two's complement."""
    return unsigned(field, number & 0xFFFF_FFFF_FFFF_FFFF)


def zigzag(field: int, number: int) -> bytes:
    """Return a field of type sint32 or sint64: zigzag encoding."""
    return unsigned(field, 2 * number if number >= 0 else -2 * number - 1)


def double(field: int, number: float) -> bytes:
    """Return a field of type double."""
    return varint(field << 3 | _FIXED64) + _DOUBLE(number)


def delimited(field: int, content: bytes) -> bytes:
    """Return a field of type bytes, or of a message type."""
    return varint(field << 3 | _DELIMITED) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field of type string."""
    return delimited(field, content.encode())


_TYPE = "application/vnd.google.protobuf"
_MESSAGE = "io.prometheus.client.MetricFamily"

CONTENT_TYPE = f"{_TYPE}; proto={_MESSAGE}; encoding=delimited"

# --- content negotiation

_TEXT_TYPES = ("application/openmetrics-text", "text/plain")
# An unclosed quotation extends to the end, which avoids backtracking.
_RANGE = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*\\?(?:"|$))+')
_PARAMETER = re.compile(r';\s*([^\s;="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')
_QUALITY = re.compile(r"0(?:\.\d*)?|1(?:\.0*)?")


def accepts(accept_header: str) -> bool:
    """Return whether a client prefers this format to text, or accepts both equally.

    The header must name the format: a wildcard selects text. Ranges with an invalid quality are ignored.
    """
    wanted: dict[str, float] = {}
    for media_range in _RANGE.findall(accept_header):
        name = media_range.partition(";")[0].strip().lower()
        parameters = {
            key.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
            for key, quoted, plain in _PARAMETER.findall(media_range)
        }
        quality = parameters.get("q", "1")
        if not _QUALITY.fullmatch(quality):
            continue
        if name == _TYPE and (parameters.get("proto"), parameters.get("encoding")) != (_MESSAGE, "delimited"):
            continue
        wanted[name] = max(wanted.get(name, 0.0), float(quality))
    quality_of_text = max(_quality(wanted, name) for name in _TEXT_TYPES)
    return wanted.get(_TYPE, 0.0) > 0 and wanted[_TYPE] >= quality_of_text


def _quality(wanted: dict[str, float], name: str) -> float:
    """Return the quality of a media type, from its most specific range."""
    ranges = (name, f"{name.partition('/')[0]}/*", "*/*")
    return next((wanted[key] for key in ranges if key in wanted), 0.0)


# --- families

#: Types with one value per series: the number of the type, and the field of `Metric` with the value.
_PLAIN = {"counter": (0, 3), "gauge": (1, 2), "info": (1, 2), "stateset": (1, 2), "unknown": (3, 5)}
#: The same for types with several values.
_COMPOSED = {"summary": (2, 4), "histogram": (4, 7), "gaugehistogram": (5, 7)}

#: The labels of a series, without `le` or `quantile`.
_Key = tuple[tuple[str, str], ...]


def encode(registry: Collector) -> bytes:
    """Return the families of a registry that have samples, each message prefixed with its length."""
    return b"".join(
        varint(len(message)) + message for family in registry.collect() for message in _messages(family)
    )


def _messages(family: Metric) -> Iterator[bytes]:
    if family.type in _COMPOSED:
        number, holder = _COMPOSED[family.type]
        body = _summary if family.type == "summary" else _histogram
        metrics = [
            _metric(key, point.timestamp_ms, holder, body(point)) for key, point in _points(family).items()
        ]
        if metrics:
            yield _family(family.name, family.documentation, number, metrics)
        return
    number, holder = _PLAIN[family.type]
    created = {}
    by_name: dict[str, list[Sample]] = {}
    for sample in family.samples:
        if family.type == "counter" and sample.name == f"{family.name}_created":
            created[_key(sample.labels)] = sample.value
        else:
            by_name.setdefault(sample.name, []).append(sample)
    for name, samples in by_name.items():
        metrics = [
            _metric(
                key := _key(sample.labels),
                _milliseconds(sample),
                holder,
                double(1, sample.value) + _created(3, created.get(key)),
            )
            for sample in samples
        ]
        yield _family(name, family.documentation, number, metrics)


def _family(name: str, documentation: str, number: int, metrics: Iterable[bytes]) -> bytes:
    head = text(1, name) + text(2, documentation) + unsigned(3, number)
    return head + b"".join(delimited(4, metric) for metric in metrics)


def _metric(key: _Key, timestamp_ms: int | None, holder: int, body: bytes) -> bytes:
    labels = b"".join(delimited(1, text(1, name) + text(2, value)) for name, value in key)
    time = b"" if timestamp_ms is None else integer(6, timestamp_ms)
    return labels + delimited(holder, body) + time


def _created(number: int, seconds: float | None) -> bytes:
    if seconds is None:
        return b""
    whole = math.floor(seconds)
    return delimited(number, integer(1, whole) + integer(2, int((seconds - whole) * 1e9)))


def _milliseconds(sample: Sample) -> int | None:
    return None if sample.timestamp is None else int(float(sample.timestamp) * 1000)


def _key(labels: dict[str, str], without: str = "") -> _Key:
    return tuple(sorted((name, value) for name, value in labels.items() if name != without))


# --- summaries and histograms


@dataclass(slots=True)
class _Point:
    """The samples of one summary or histogram; `parts` are values by upper bound or quantile."""

    timestamp_ms: int | None = None
    parts: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    sum: float | None = None
    created: float | None = None
    native: NativeHistogram | None = None


def _points(family: Metric) -> dict[_Key, _Point]:
    part = "quantile" if family.type == "summary" else "le"
    points: dict[_Key, _Point] = {}
    for sample in family.samples:
        point = points.setdefault(_key(sample.labels, part), _Point(_milliseconds(sample)))
        suffix = sample.name.removeprefix(family.name)
        if sample.native_histogram is not None:
            point.native = sample.native_histogram
        elif suffix in ("_count", "_gcount"):
            point.count = sample.value
        elif suffix in ("_sum", "_gsum"):
            point.sum = sample.value
        elif suffix == "_created":
            point.created = sample.value
        else:
            point.parts[float(sample.labels[part])] = sample.value
    return points


def _summary(point: _Point) -> bytes:
    quantiles = (
        delimited(3, double(1, quantile) + double(2, value))
        for quantile, value in sorted(point.parts.items())
    )
    return b"".join(
        (unsigned(1, int(point.count or 0)), _sum(point), *quantiles, _created(4, point.created)),
    )


def _histogram(point: _Point) -> bytes:
    buckets = (
        delimited(3, _count(1, 4, count) + double(2, bound))
        for bound, count in sorted(point.parts.items())
        if bound < math.inf  # the +Inf bucket equals the count
    )
    count = point.parts.get(math.inf, 0.0) if point.count is None else point.count
    native = b"" if point.native is None else _native(point.native)
    return b"".join((_count(1, 4, count), _sum(point), *buckets, native, _created(15, point.created)))


def _sum(point: _Point) -> bytes:
    return b"" if point.sum is None else double(2, point.sum)


def _count(whole: int, fraction: int, value: float) -> bytes:
    """Return a count in the field `whole` if it is a uint64, otherwise in the field `fraction`."""
    if 0 <= value < 2**64 and value == int(value):
        return unsigned(whole, int(value))
    return double(fraction, value)


def _native(native: NativeHistogram) -> bytes:
    return b"".join(
        (
            zigzag(5, native.schema),
            double(6, native.zero_threshold),
            unsigned(7, int(native.zero_count)),
            *_buckets(9, native.neg_spans, native.neg_deltas),
            *_buckets(12, native.pos_spans, native.pos_deltas),
        ),
    )


def _buckets(
    number: int, spans: Iterable[BucketSpan] | None, deltas: Iterable[int] | None
) -> Iterator[bytes]:
    for span in spans or ():
        yield delimited(number, zigzag(1, span.offset) + unsigned(2, span.length))
    for delta in deltas or ():
        yield zigzag(number + 1, delta)
