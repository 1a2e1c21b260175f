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
    from prometheus_client import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import NativeHistogram

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
#: An unclosed quotation extends to the end, which avoids backtracking.
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

#: The supported types: their number, and the field of `Metric` with the value.
_TYPES = {"counter": (0, 3), "gauge": (1, 2), "histogram": (4, 7)}
_Key = tuple[tuple[str, str], ...]  # the labels of a series, without `le`


def encode(registry: Collector) -> bytes:
    """Return the families of a registry with samples, without timestamps, each after its length.

    Counters, gauges and histograms; KeyError for another type.
    """
    messages = [_family(family) for family in registry.collect() if family.samples]
    return b"".join(varint(len(message)) + message for message in messages)


def _family(family: Metric) -> bytes:
    number, value_field = _TYPES[family.type]
    if family.type == "histogram":
        name = family.name
        series = [(key, _histogram(point)) for key, point in _points(family).items()]
    else:
        name = family.samples[0].name
        series = [(_key(sample.labels), double(1, sample.value)) for sample in family.samples]
    metrics = (delimited(4, _labels(key) + delimited(value_field, body)) for key, body in series)
    return b"".join((text(1, name), text(2, family.documentation), unsigned(3, number), *metrics))


def _labels(key: _Key) -> bytes:
    return b"".join(delimited(1, text(1, name) + text(2, value)) for name, value in key)


def _key(labels: dict[str, str]) -> _Key:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "le"))


# --- histograms


@dataclass(slots=True)
class _Point:
    """The samples of one histogram; `buckets` are counts by upper bound."""

    buckets: dict[float, float] = field(default_factory=dict)
    count: float = 0.0
    sum: float = 0.0
    native: NativeHistogram | None = None


def _points(family: Metric) -> dict[_Key, _Point]:
    points: dict[_Key, _Point] = {}
    for sample in family.samples:
        point = points.setdefault(_key(sample.labels), _Point())
        suffix = sample.name.removeprefix(family.name)
        if sample.native_histogram is not None:
            point.native = sample.native_histogram
        elif suffix == "_count":
            point.count = sample.value
        elif suffix == "_sum":
            point.sum = sample.value
        else:
            point.buckets[float(sample.labels["le"])] = sample.value
    return points


def _histogram(point: _Point) -> bytes:
    buckets = (
        delimited(3, _count(1, 4, count) + double(2, bound))
        for bound, count in sorted(point.buckets.items())
        if bound < math.inf  # the +Inf bucket equals the count
    )
    native = b"" if point.native is None else _native(point.native)
    return b"".join((_count(1, 4, point.count), double(2, point.sum), *buckets, native))


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
            *(delimited(12, zigzag(1, s.offset) + unsigned(2, s.length)) for s in native.pos_spans or ()),
            *(zigzag(13, delta) for delta in native.pos_deltas or ()),
        )
    )
