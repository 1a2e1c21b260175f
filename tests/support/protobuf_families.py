"""Reads the protobuf exposition format with the real protobuf library: an independent judge of the encoder.

families = decode(body)
assert series(families) == {("up", ()): 1.0}
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, unknown_fields
from prometheus_client import Metric

#: The messages of https://github.com/prometheus/client_model, in full.
DEFINITION = """
message LabelPair { optional string name = 1; optional string value = 2; }
enum MetricType { COUNTER = 0; GAUGE = 1; SUMMARY = 2; UNTYPED = 3; HISTOGRAM = 4; GAUGE_HISTOGRAM = 5; }
message Gauge { optional double value = 1; }
message Counter {
  optional double value = 1; optional Exemplar exemplar = 2; optional Timestamp created_timestamp = 3;
}
message Quantile { optional double quantile = 1; optional double value = 2; }
message Summary {
  optional uint64 sample_count = 1; optional double sample_sum = 2; repeated Quantile quantile = 3;
  optional Timestamp created_timestamp = 4;
}
message Untyped { optional double value = 1; }
message Histogram {
  optional uint64 sample_count = 1; optional double sample_count_float = 4; optional double sample_sum = 2;
  repeated Bucket bucket = 3; optional Timestamp created_timestamp = 15; optional sint32 schema = 5;
  optional double zero_threshold = 6; optional uint64 zero_count = 7; optional double zero_count_float = 8;
  repeated BucketSpan negative_span = 9; repeated sint64 negative_delta = 10;
  repeated double negative_count = 11; repeated BucketSpan positive_span = 12;
  repeated sint64 positive_delta = 13; repeated double positive_count = 14; repeated Exemplar exemplars = 16;
}
message Bucket {
  optional uint64 cumulative_count = 1; optional double cumulative_count_float = 4;
  optional double upper_bound = 2; optional Exemplar exemplar = 3;
}
message BucketSpan { optional sint32 offset = 1; optional uint32 length = 2; }
message Exemplar {
  repeated LabelPair label = 1; optional double value = 2; optional Timestamp timestamp = 3;
}
message Metric {
  repeated LabelPair label = 1; optional Gauge gauge = 2; optional Counter counter = 3;
  optional Summary summary = 4; optional Untyped untyped = 5; optional Histogram histogram = 7;
  optional int64 timestamp_ms = 6;
}
message MetricFamily {
  optional string name = 1; optional string help = 2; optional MetricType type = 3;
  repeated Metric metric = 4; optional string unit = 5;
}
"""

_PACKAGE = "io.prometheus.client"
_TIMESTAMP = timestamp_pb2.Timestamp.DESCRIPTOR.full_name

_Field = descriptor_pb2.FieldDescriptorProto

#: A series: its name, and its labels by name.
Series = tuple[str, tuple[tuple[str, str], ...]]


@cache
def _message_class() -> Any:
    """Return the class of `MetricFamily`."""
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=_PACKAGE, syntax="proto2")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    for keyword, name, body in re.findall(r"(message|enum) (\w+) \{(.*?)\}", DEFINITION, re.DOTALL):
        if keyword == "enum":
            enum = file.enum_type.add(name=name)
            for value, number in re.findall(r"(\w+) = (\d+);", body):
                enum.value.add(name=value, number=int(number))
            continue
        message = file.message_type.add(name=name)
        for label, kind, field, number in re.findall(r"(\w+) (\w+) (\w+) = (\d+);", body):
            added = message.field.add(name=field, number=int(number))
            added.label = _Field.Label.Value(f"LABEL_{label.upper()}")
            if kind[0].islower():
                added.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
            else:
                added.type = _Field.TYPE_ENUM if kind == "MetricType" else _Field.TYPE_MESSAGE
                added.type_name = f".{_TIMESTAMP}" if kind == "Timestamp" else f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


def decode(body: bytes) -> list[Any]:
    """Return the families of an answer; fail where it has anything else, also a field that is not defined."""
    families, position = [], 0
    while position < len(body):
        length, shift = 0, 0
        while True:
            byte = body[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        assert position + length <= len(body), "the last message is cut off"
        family = _message_class().FromString(body[position : position + length])
        assert not list(_unknown(family)), f"{family.name} has fields that are not defined"
        families.append(family)
        position += length
    return families


def _unknown(message: Any) -> Iterator[object]:
    yield from unknown_fields.UnknownFieldSet(message)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                yield from _unknown(part)


# --- what Prometheus makes of it


def series(families: Iterable[Any]) -> dict[Series, float]:
    """Return the series that Prometheus stores without native histograms, and `_created` of what has it."""
    found: dict[Series, float] = {}
    for family in families:
        assert family.metric, f"{family.name} is empty"
        for metric in family.metric:
            names = [pair.name for pair in metric.label]
            labels = {pair.name: pair.value for pair in metric.label}
            assert len(labels) == len(names), f"a label of {family.name} occurs twice"
            for name, more, value in _samples(family, metric):
                key = name, tuple(sorted({**labels, **more}.items()))
                assert key not in found, f"{key} occurs twice"
                found[key] = value
    return found


def _samples(family: Any, metric: Any) -> Iterator[tuple[str, Mapping[str, str], float]]:
    kind = type(family).DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[family.type].name
    holder = {"GAUGE_HISTOGRAM": "histogram"}.get(kind, kind.lower())
    assert metric.HasField(holder), f"{family.name} is a {kind} without its field"
    value = getattr(metric, holder)
    if kind == "SUMMARY":
        yield f"{family.name}_count", {}, float(value.sample_count)
        yield f"{family.name}_sum", {}, value.sample_sum
        for part in value.quantile:
            yield family.name, {"quantile": go_float(part.quantile)}, part.value
    elif holder == "histogram":
        g = "g" if kind == "GAUGE_HISTOGRAM" else ""
        count = value.sample_count_float or float(value.sample_count)
        yield f"{family.name}_{g}count", {}, count
        yield f"{family.name}_{g}sum", {}, value.sample_sum
        bounds = [part.upper_bound for part in value.bucket]
        assert bounds == sorted(bounds), f"the buckets of {family.name} do not rise"
        for part in value.bucket:
            cumulative = part.cumulative_count_float or float(part.cumulative_count)
            yield f"{family.name}_bucket", {"le": go_float(part.upper_bound)}, cumulative
        yield f"{family.name}_bucket", {"le": "+Inf"}, count
    else:
        yield family.name, {}, value.value
    created = value.DESCRIPTOR.fields_by_name.get("created_timestamp")
    if created is not None and value.HasField("created_timestamp"):
        stamp = value.created_timestamp
        base = family.name.removesuffix("_total")
        yield f"{base}_created", {}, stamp.seconds + stamp.nanos / 1e9


def go_float(number: float) -> str:
    """Return a float as Prometheus writes it for `le` and `quantile`: as Go does, with ".0" to whole ones."""
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits = Decimal(repr(number)).normalize()
    if -4 <= digits.adjusted() < 6:
        return repr(number)
    return f"{digits.scaleb(-digits.adjusted()):f}e{digits.adjusted():+03d}"


def samples(families: Iterable[Metric]) -> dict[Series, float]:
    """Return the same of families of prometheus_client."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if sample.native_histogram is None
    }
