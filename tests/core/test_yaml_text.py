"""YAML files: every text that cannot be used is refused in one line, with its place and
nothing of it.
"""

import pytest

from vllm_specdec_exporter.config.yaml_text import YAMLTextError, read_yaml
from vllm_specdec_exporter.listener.web_config import fields
from vllm_specdec_exporter.listener.web_config.fields import WebConfigError

#: Texts that PyYAML fails on, or takes for what nobody can mean; and why each is
#: refused.
_RANGE = "found a number out of range"
REFUSED = {
    "escape of no character": ('a: 1\nb: "\\UFFFFFFFF"', _RANGE),
    "half a character": ('a: "x\\ud800"', "found a lone surrogate in line 1, column 4"),
    "halves in the wrong order": (
        'a: "\\ude00\\ud83d"',
        "found a lone surrogate in line 1, column 4",
    ),
    "half a character as a key": (
        '"\\udfff": 1',
        "found a lone surrogate in line 1, column 1",
    ),
    "version": (f"%YAML 1.{'9' * 5000}\n---\na", _RANGE),
    "alias": ("a: &x [1]\nb: *x", "found an alias in line 2, column 4"),
    "key twice": (
        "a: secret\nb: 1\n'a': 2",
        "found a key for the second time in line 3, column 1",
    ),
    "several documents": (
        "a: 1\n---\nb: 1",
        "but found another document in line 2, column 1",
    ),
    "depth": ("[" * 5000, "nested too deeply"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, why: str) -> None:
    """Settings and web configurations are refused alike."""
    with pytest.raises(YAMLTextError) as settings:
        read_yaml(text)
    with pytest.raises(WebConfigError) as web:
        fields.parse_yaml(text.encode())

    assert str(settings.value) == why
    assert str(web.value) == f"not YAML: {why}"


def test_two_halves() -> None:
    """JSON is YAML, and writes some characters in two halves."""
    text = '{"name": "\\ud83d\\ude00 \\u00e4"}'

    assert read_yaml(text) == {"name": "😀 ä"}
    assert fields.parse_yaml(text.encode()) == {"name": "😀 ä"}


def test_values_of_settings() -> None:
    """What is a number to YAML, and none to anybody else."""
    for text, why in (
        ("a: 2026-99-99", "invalid for its type in line 1, column 4"),
        (f"a: {'9' * 400}", "digits in line 1, column 4"),
    ):
        with pytest.raises(YAMLTextError, match=why):
            read_yaml(text)


@pytest.mark.parametrize("word", ["null", "~", "on", "No", "true"])
def test_keys_of_settings(word: str) -> None:
    """Python's text for null is no name, and that for true none that anybody wrote."""
    with pytest.raises(YAMLTextError) as refused:
        read_yaml(f"web: 1\nheader: {{{word}: a}}")
    assert str(refused.value) == (
        "found a key that means null, true or false without quotes in line 2, column 10"
    )
    assert read_yaml(f'{{"{word}": a, 1: b, .5: c}}') == {word: "a", 1: "b", 0.5: "c"}
    # A user of the web configuration may have such a name.
    assert fields.parse_yaml(f"{{{word}: a}}".encode()) == {word: "a"}
