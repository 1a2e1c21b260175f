"""The sentences of judgement: all of them with numbers in one golden file, and none
that the code cannot name.
"""

import ast
import copy
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.golden import golden_text
from vllm_specdec_exporter.judgement import messages
from vllm_specdec_exporter.judgement.messages import Message, message

PACKAGE = Path(messages.__file__).parents[1]
GOLDEN = Path(__file__).with_name("messages.txt")
TEXTS = messages._TEXTS


class Sample:
    """A value of any kind: a number where a number is formatted, else its own name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "Sample":
        return Sample(name)

    def __getitem__(self, index: int) -> "Sample":
        return Sample(f"{self._name} {index}")

    def __format__(self, form: str) -> str:
        if not form:
            return f"<{self._name}>"
        if "%" in form:
            return format(0.4567, form)
        return format(1234.5678, form)


def sampled(name: str) -> Message:
    """The message of this name with made-up values."""
    fields = {
        re.split(r"[.\[]", field)[0]
        for _, field, _, _ in string.Formatter().parse(TEXTS[name])
        if field
    }
    return message(name, **{field: Sample(field) for field in fields})


def test_what_each_message_says() -> None:
    """`UPDATE_GOLDEN=1` writes the file anew."""
    lines = [f"{name}: {sampled(name)}\n" for name in TEXTS]
    assert "".join(lines) == golden_text(GOLDEN, "".join(lines))


def named() -> Iterator[str]:
    """Yield patterns of the names of messages that the code has; a part that is put
    together is any word.
    """
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(ast.Name("message"), [ast.JoinedStr(parts), *_]):
                    yield "".join(map(pattern, parts))
                case ast.Call(ast.Name("message"), [ast.IfExp(_, first, second), *_]):
                    yield from (pattern(first), pattern(second))
                case ast.Call(ast.Name("message"), [name, *_]):
                    yield pattern(name)


def pattern(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return re.escape(str(part.value))
    return r"\w*"


def test_every_message_is_named_by_the_code() -> None:
    """A text that nothing names is never read."""
    any_name = re.compile("|".join(named()))
    assert [name for name in TEXTS if not any_name.fullmatch(name)] == []


def test_a_message_is_its_text_and_keeps_name_and_values() -> None:
    reason = message("activity.idle", window="5m")
    scheduled = message("activity.scheduled", reason=reason, batch=1500.0)

    assert scheduled == f"{reason}: the K schedule has K=0 for 1,500 requests"
    assert scheduled.name == "activity.scheduled"
    assert scheduled.values == {"reason": reason, "batch": 1500.0}


def test_a_message_always_has_a_name_and_values() -> None:
    """Without them, as with them; and its copies have what it has."""
    plain = Message("text")
    assert (plain, plain.name, plain.values) == ("text", "", {})
    idle = message("activity.idle", window="5m")
    copies = [copy.copy(idle), pickle.loads(pickle.dumps(idle))]
    assert [(c, c.name, c.values) for c in copies] == [
        (idle, "activity.idle", {"window": "5m"})
    ] * 2


@pytest.mark.parametrize("name", ["activity.none", "activity", "activity.idle"])
def test_an_unknown_name_or_a_missing_value_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        message(name)
