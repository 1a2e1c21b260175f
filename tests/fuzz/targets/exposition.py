"""The exposition parser: any bytes are read, or refused for a reason that holds.

The first byte of an input says how the rest is meant, so that one corpus reaches
classic text and OpenMetrics, with latencies and without.

What is promised:

- A `Reading`, `MalformedExposition` or `Unrecognized`; nothing else.
- Where the text keeps to the format (`_SAMPLE`) and prometheus_client's parser takes
  every line of it, exactly its samples are read: none invented, none lost, with the
  same labels and values.
- Such a text is refused only for what it says: a counter that cannot be, a series
  twice, … (`_excuse`).
- The order of lines and of labels does not matter, and neither does whether latencies
  are read.
"""

import gzip
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from prometheus_client.parser import text_string_to_metric_families

from fuzz.seeds import DATA
from support.copies import replace
from vllm_specdec_exporter.engines import DIALECTS, Unrecognized, read
from vllm_specdec_exporter.engines.dialect import MAX_POSITIONS
from vllm_specdec_exporter.engines.limits import (
    MAX_DEFECTS,
    MAX_ENGINES,
    MAX_LABEL,
    MAX_VALUE,
)
from vllm_specdec_exporter.engines.reading import EngineKey, EngineReading, Reading
from vllm_specdec_exporter.exposition.text import (
    MAX_LINE,
    MAX_LINES,
    MalformedExposition,
    SampleLine,
    Selection,
)

#: What the first byte of an input says, as bits of its number, such as ``0`` to ``3``.
LATENCIES = 1
OPENMETRICS = 2
_CONTENT_TYPES = (
    "text/plain; version=0.0.4",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
)

#: Characters of a refusal: two quotes of 120 characters, each of which may be spelled
#: ``\\U0001f600``.
MAX_MESSAGE = 3000


_COUNTED = {name for dialect in DIALECTS for name in dialect.names()}
_TIMED = {name for dialect in DIALECTS for name in dialect.histogram_fields}
_SELECTIONS = (Selection(_COUNTED), Selection(_COUNTED | _TIMED))


# The text format as Prometheus documents it, a line at a time. What Go takes for a
# number is narrower than what Python does: no surrounding space, no signed NaN, nothing
# out of range.
_LABEL_TEXT = rb'[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"(?:[^"\\\n\0]|\\[^\n\0])*"[ \t]*'
_NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[iI]nf|NaN"
_SAMPLE = re.compile(
    rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)"
    rb"(?:[ \t]*\{[ \t]*((?:"
    + _LABEL_TEXT
    + rb"(?:,[ \t]*"
    + _LABEL_TEXT
    + rb")*,?)?)[ \t]*\}[ \t]*|[ \t]+)"
    rb"(" + _NUMBER + rb")(?:[ \t]+-?[0-9]{1,18})?[ \t]*"
)
_EXEMPLAR = re.compile(
    rb' # \{[^}\n"]*(?:"[^"\\\n]*"[^}\n"]*)*\} [0-9.]+(?: [0-9.]+)?\Z'
)


def check(data: bytes) -> None:
    """Raise unless the parser keeps its promises for one input."""
    if not data:
        return
    latencies = bool(data[0] & LATENCIES)
    openmetrics = bool(data[0] & OPENMETRICS)
    body = data[1:]
    content_type = _CONTENT_TYPES[openmetrics]
    refusal: ValueError | None = None
    reading: Reading | None = None
    try:
        reading = read(body, content_type, latencies=latencies)
    except (MalformedExposition, Unrecognized) as error:
        refusal = error
    if refusal is not None:
        assert str(refusal).isprintable(), (
            f"a message that steers a terminal: {refusal!r}"
        )
        assert len(str(refusal)) < MAX_MESSAGE, (
            f"a message of {len(str(refusal))} characters"
        )
    samples = reference(body, openmetrics=openmetrics)
    if samples is not None:
        names = set(_COUNTED)
        if latencies:
            names |= _TIMED
        wanted = [sample for sample in samples if sample.name in names]
        if reading is None:
            excuse = _excuse(wanted, body, openmetrics=openmetrics)
            assert excuse or (
                isinstance(refusal, Unrecognized) and _no_server(wanted)
            ), f"refused without need: {refusal}"
        else:
            _agree(list(_SELECTIONS[latencies].lines(body)), wanted)
            _sums(reading, wanted)
    if reading is not None:
        _order(reading, body, latencies=latencies)


# --- what prometheus_client makes of it


def reference(body: bytes, *, openmetrics: bool) -> list[SampleLine] | None:
    """Return the samples of a text that a Prometheus server would take, ``None`` of any
    other.
    """
    if body and not body.endswith(b"\n"):
        if not (openmetrics and body.endswith(b"\n# EOF")):
            return None
        body += b"\n"
    if openmetrics and not body.endswith(b"# EOF\n"):
        return None
    samples = []
    for line in body.split(b"\n"):
        sample = _sample(line, openmetrics)
        if sample is None:
            return None
        if sample is not _NOTHING:
            samples.append(sample)
    return samples


_NOTHING = SampleLine("", (), 0.0)


@lru_cache(maxsize=1 << 15)
def _sample(line: bytes, openmetrics: bool) -> SampleLine | None:
    """Return the sample of a line, `_NOTHING` where it has none, ``None`` where a
    server would refuse it.
    """
    content = line.lstrip(b" \t")
    if not content or content.startswith(b"#"):
        if b"\0" in line:
            return None
        return _NOTHING
    if openmetrics:
        line = _EXEMPLAR.sub(b"", line)
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    try:
        (family,) = text_string_to_metric_families(line.decode() + "\n")
        (sample,) = family.samples
        value = float(sample.value)
    except (ValueError, OverflowError):
        return None
    if math.isinf(value) and b"nf" not in match[3]:
        return None  # out of range, which Go refuses
    return SampleLine(sample.name, tuple(sorted(sample.labels.items())), value)


def _agree(ours: list[SampleLine], theirs: list[SampleLine]) -> None:
    """Nothing is invented and nothing lost."""
    assert len(ours) == len(theirs), (
        f"{len(ours)} samples instead of {len(theirs)}: {ours} {theirs}"
    )
    for read_line, line in zip(ours, theirs, strict=True):
        assert (read_line.name, read_line.labels) == (line.name, line.labels)
        both_nan = math.isnan(read_line.value) and math.isnan(line.value)
        assert both_nan or read_line.value == line.value, f"{read_line}, not {line}"


#: The label with the position of the counters by position, by the ends of their names.
_POSITIONS = {
    ("_per_pos_total",): "position",
    (
        "spec_decode_accepted_tokens_total",
        "spec_decode_drafted_tokens_total",
    ): "token_position",
}


def _position_label(name: str) -> str:
    return next(
        (label for names, label in _POSITIONS.items() if name.endswith(names)), ""
    )


def _excuse(wanted: list[SampleLine], body: bytes, *, openmetrics: bool) -> str:
    """Return why a text of good form may be refused nevertheless; empty where nothing
    excuses it.
    """
    start = body[:256].lstrip().lower()
    series = set()
    engines = set()
    for line in wanted:
        name = line.name
        by_name = dict(line.labels)
        engine = set(by_name) - {"pid", "le", "position"}
        engines.add(tuple((label, by_name[label]) for label in sorted(engine)))
        # Ray writes the same series under another prefix.
        key = (name.removeprefix("ray_").replace(":", "_", 1), line.labels)
        if key in series:
            return "a series twice"
        series.add(key)
        if not 0 <= line.value <= MAX_VALUE:
            return "a value that cannot be"
        if sum(len(label) + 3 * len(text) for label, text in line.labels) > MAX_LABEL:
            return "a long label"
        label = _position_label(name)
        if label and not re.fullmatch("[0-9]{1,3}", by_name.get(label, ""), re.ASCII):
            return "no position"
        if label and int(by_name[label]) >= MAX_POSITIONS:
            return "a position that cannot be"
        if name.endswith("_bucket") and not _is_bound(by_name.get("le", "")):
            return "no bound"
    if len(engines) > MAX_ENGINES or len(wanted) > MAX_LINES:
        return "too much"
    if any(len(line) > MAX_LINE for line in body.split(b"\n")):
        return "a long line"
    if start.startswith((b"<!doctype", b"<html")):
        return "a page"
    return ""


def _is_bound(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


def _no_server(wanted: list[SampleLine]) -> bool:
    """Whether the samples are of no known server, or may be of servers of several kinds
    or types.
    """
    names = {line.name for line in wanted}
    dialects = [dialect for dialect in DIALECTS if dialect.may_be(names)]
    labels = set(chain.from_iterable(line.labels for line in wanted))
    types = [value for name, value in labels if name == "engine_type"]
    return len(dialects) != 1 or len(types) > 1


def _sums(reading: Reading, wanted: list[SampleLine]) -> None:
    """Every counter is the sum of its samples, engine by engine; no series counts
    twice, no engine is new.
    """
    dialect = next(dialect for dialect in DIALECTS if dialect.name == reading.dialect)
    expected: dict[EngineKey, dict[str, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    series = set()
    parts = dialect.parts_in(
        line for line in wanted if line.name not in dialect.histogram_fields
    )
    for line in wanted:
        if line.name.endswith("_bucket"):
            own_label = "le"
        else:
            own_label = _position_label(line.name)
        sums = expected[_engine(dict(line.labels), parts | {own_label})]
        field = dialect.fields.get(line.name)
        if field:
            assert (field, line.labels) not in series, (
                f"{line.name}{line.labels} counts twice"
            )
            series.add((field, line.labels))
            sums[""] = sums[field[0]] = sums[field[0]] + line.value
        timed, part = dialect.histogram_fields.get(line.name, ("", ""))
        if part == "sum":
            sums[timed] += line.value
    written = {key for key, sums in expected.items() if "" in sums}
    assert written == {engine.key for engine in reading.engines}, "other engines"
    for engine in reading.engines:
        sums = expected[engine.key]
        counted = {
            "drafts",
            "draft_tokens",
            "accepted_tokens",
            "generation_tokens",
        } - set(dialect.derived)
        for attribute in sorted(counted):
            value = getattr(engine.counters, attribute)
            assert (value is None) == (attribute not in sums), f"{attribute} is {value}"
            assert value is None or _close(value, sums[attribute]), (
                f"{attribute}: {value}, {sums[attribute]}"
            )
        positions = engine.counters.accepted_tokens_per_position
        if positions and "accepted_tokens_per_position" not in dialect.derived:
            total = sums["accepted_tokens_per_position"]
            assert _close(sum(positions), total), f"positions: {positions}, {total}"
        if engine.latencies is None:
            continue
        for attribute in dialect.histograms:
            histogram = getattr(engine.latencies, attribute)
            total = sums.get(attribute, 0.0)
            counted_sum = getattr(histogram, "sum", 0.0)
            assert _close(counted_sum, total), (attribute, histogram, total)


def _engine(labels: dict[str, str], parts: frozenset[str]) -> EngineKey:
    """The engine of a series: no label that separates it from others is left out."""
    names = sorted(
        name for name, text in labels.items() if text and name not in {"engine", *parts}
    )
    texts = {
        name: re.sub("[%,=]", lambda c: f"%{ord(c[0]):02X}", text)
        for name, text in labels.items()
    }
    engine = [f"{name}={texts[name]}" for name in names if name != "model_name"]
    if labels.get("engine"):
        engine.insert(0, texts["engine"])
    return EngineKey(labels.get("model_name", ""), ",".join(engine))


# --- what does not matter


def _order(reading: Reading, body: bytes, *, latencies: bool) -> None:
    """The lines backwards, with their labels backwards, are read alike; so they are
    without latencies.
    """
    lines = list(_SELECTIONS[latencies].lines(body))
    text = "".join(_written(lines[::-1])).encode()
    again = read(text, latencies=latencies)
    assert again == reading or _same(again, reading), f"{again} instead of {reading}"
    if latencies:
        bare = read(body, latencies=False)
        cut = replace(
            reading, engines=tuple(replace(e, latencies=None) for e in reading.engines)
        )
        assert bare == cut, f"{bare} instead of {cut}"


def _written(lines: Iterable[SampleLine]) -> Iterator[str]:
    for line in lines:
        pairs = (
            f'{name}="{value.translate(_ESCAPES)}"'
            for name, value in reversed(line.labels)
        )
        yield f"{line.name}{{{','.join(pairs)}}} {line.value!r}\n"


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _same(left: object, right: object) -> bool:
    """Tell whether two readings say the same: sums may differ in their last digit,
    defects in their order.
    """
    if isinstance(left, float) and isinstance(right, float):
        return left == right or _close(left, right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, EngineReading) and isinstance(right, EngineReading):
        # Of too many defects, which are kept is a matter of order.
        if len(left.defects) == len(right.defects) == MAX_DEFECTS:
            right = replace(right, defects=left.defects)
        left = replace(left, defects=tuple(sorted(left.defects)))
        right = replace(right, defects=tuple(sorted(right.defects)))
    fields = getattr(
        left, "__struct_fields__", getattr(left, "__dataclass_fields__", None)
    )
    if fields and type(left) is type(right):
        return all(_same(getattr(left, name), getattr(right, name)) for name in fields)
    return left == right


def _close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=1e-9)


def seeds() -> Iterator[bytes]:
    """Yield the recorded answers in small pieces: the lines of interest, a few at a
    time.
    """
    names = _COUNTED | _TIMED
    texts = [path.read_bytes() for path in sorted((DATA / "upstream").glob("*.txt"))]
    texts += [
        path.read_bytes()
        for path in sorted((DATA / "captures").glob("*/metrics-final.txt"))
    ]
    texts += [
        gzip.decompress(path.read_bytes())
        for path in sorted((DATA / "captures/rendered").glob("*.gz"))
    ]
    for text in texts:
        rows = [
            row
            for row in text.split(b"\n")
            if re.split(rb"[{ ]", row, maxsplit=1)[0].decode() in names
        ]
        counted = [
            row
            for row in rows
            if re.split(rb"[{ ]", row, maxsplit=1)[0].decode() in _COUNTED
        ]
        for part in (counted[:10], counted[-10:], rows[:12], rows[-12:]):
            joined = b"\n".join(part) + b"\n"
            yield b"0" + joined
            yield b"1" + joined
            yield b"3" + joined + b"# EOF\n"
