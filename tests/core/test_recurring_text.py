"""One text of a server after the other: what is remembered of the last one changes
nothing of what is read.
"""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.seeds import DATA
from vllm_specdec_exporter.engines import Reader, Unrecognized, read
from vllm_specdec_exporter.engines.reading import Reading
from vllm_specdec_exporter.exposition.text import MalformedExposition

#: Recorded answers of every engine, up to a size that is read a hundred times a second.
_MOST = 128 * 1024


def _recorded(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    return path.read_bytes()


def _texts() -> dict[str, bytes]:
    texts = {}
    for path in sorted(DATA.rglob("*.txt*")):
        text = _recorded(path)
        if len(text) <= _MOST and _outcome(text)[0] is not MalformedExposition:
            texts[str(path.relative_to(DATA))] = text
    return texts


def _outcome(text: bytes, reader: Reader | None = None) -> tuple[object, str]:
    """Return what a text is read as, or its refusal."""
    method = read if reader is None else reader.read
    try:
        return Reading, repr(method(text, latencies=False))
    except (MalformedExposition, Unrecognized) as refusal:
        return type(refusal), str(refusal)


RECORDED = _texts()
ANSWERS = {
    name: text for name, text in RECORDED.items() if _outcome(text)[0] is Reading
}

#: What a server may print as a value, and what none prints.
values = st.sampled_from(
    [
        b"0.0",
        b"7",
        b"1e+06",
        b"NaN",
        b"+Inf",
        b"-1.0",
        b"1_0",
        b"",
        b" 1.0",
        b"1.0 ",
        b"1.0\r",
        b"1.0 1795203444",
        b"1.0 # {} 1",
        b"0x1",
        b"1" * 70,
        b'"',
    ]
)
words = st.sampled_from(
    [b"1", b".", b"\n", b" ", b"#", b"{", b'"', b"vllm:", b"x_total 1\n", b"\n\n"]
)


@st.composite
def changed(draw: st.DrawFn, text: bytes) -> bytes:
    """Return a text as a server may print it next, or that damage has made of it."""
    lines = text.split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["value", "digits", "remove", "copy", "swap"]))
        # Of the lines that count, which are few, more often than of the others.
        counted = [
            n for n, line in enumerate(lines) if b"spec" in line or b"num_" in line
        ]
        at = draw(st.sampled_from(counted or [0]) | st.integers(0, len(lines) - 1))
        at %= len(lines)
        target = draw(st.integers(0, len(lines) - 1))
        if kind == "value":
            lines[at] = lines[at].rpartition(b" ")[0] + b" " + draw(values)
        elif kind == "digits":
            digit = draw(st.sampled_from([b"0", b"1", b"23", b"."]))
            lines[at] = re.sub(rb"\d", digit, lines[at], count=draw(st.integers(1, 9)))
        elif kind == "remove" and len(lines) > 1:
            del lines[at]
        elif kind == "copy":
            lines.insert(target % len(lines), lines[at])
        else:
            target %= len(lines)
            lines[at], lines[target] = lines[target], lines[at]
    changed = b"\n".join(lines)
    if draw(st.booleans()):
        offset = draw(st.integers(0, len(changed)))
        changed = changed[:offset] + draw(words) + changed[offset:]
    return changed


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_recur(name: str) -> None:
    """Of every engine: as long as only values change, the lines are those before."""
    reader = Reader()
    text = ANSWERS[name]
    # A point is no part of a name, a digit may be one.
    grown = re.sub(rb"(?m)^([^#\n]* )(\d+)(\.\d+)?$", rb"\g<1>\g<2>1\3", text)
    for answer in (text, grown, text):
        assert _outcome(answer, reader) == _outcome(answer)
    assert reader._text.recurs


@given(st.data())
def test_any_text_after_another(data: st.DataObject) -> None:
    """The same reading or the same refusal, whatever was read before."""
    text = RECORDED[data.draw(st.sampled_from(sorted(RECORDED)))]
    reader = Reader()
    for answer in (text, data.draw(changed(text)), data.draw(changed(text)), text):
        assert _outcome(answer, reader) == _outcome(answer)


_NAME = b"vllm:spec_decode_num_drafts_total"
_ONE = _NAME + b'{engine="0"} 1\nvllm:generation_tokens_total{engine="0"} 5\nother 1\n'
#: A text after `_ONE` with the same characters but digits, and others of its lines.
NEXT = {
    "another engine": _ONE.replace(b'engine="0"', b'engine="1"'),
    "a name with a digit": _ONE.replace(b"drafts", b"dr1afts"),
    "a name that gets one": _ONE.replace(b"other", b"9other"),
    "lines that change places": b"\n".join(_ONE.split(b"\n")[1::-1]) + b"\nother 1\n",
    "a digit before the value": _ONE.replace(b"} 1\n", b"}2 1\n"),
    "a digit before the line": b"1" + _ONE,
    "no value": _ONE.replace(b"} 1\n", b"} \n"),
    "a value of digits apart": _ONE.replace(b"} 1\n", b"} 1_1\n"),
    "a long value": _ONE.replace(b"} 1\n", b"} " + b"1" * 17_000 + b"\n"),
    "an impossible value": _ONE.replace(b"} 1\n", b"} " + b"9" * 40 + b"\n"),
}


@pytest.mark.parametrize("answer", NEXT.values(), ids=NEXT)
def test_what_digits_hide(answer: bytes) -> None:
    reader = Reader()
    for text in (_ONE, answer, answer, answer, _ONE, answer):
        assert _outcome(text, reader) == _outcome(text)


def test_a_hidden_name_is_no_secret() -> None:
    """A text that has selected names but for digits is read as a whole: a later one may
    have them without.
    """
    reader = Reader()
    hidden = _ONE + _NAME.replace(b"drafts", b"dr1afts") + b'{engine="0"} 7\n'
    shown = hidden.replace(b"dr1afts", b"drafts")
    for text in (hidden, hidden, shown, hidden, shown):
        assert _outcome(text, reader) == _outcome(text)
        assert not reader._text.recurs


def test_where_lines_change_often_remembering_is_rare() -> None:
    """Remembering takes as long as reading."""
    reader = Reader()
    remembered = 0
    for n in range(512):
        reader.read(_ONE.replace(b'engine="0"', b'engine="%s"' % (b"a" * (n % 7))))
        remembered += reader._text._remembered is not None
    assert remembered < 20
    for _ in range(64):
        reader.read(_ONE)
    assert reader._text.recurs
