"""Thresholds in prose: a number that a document or a runbook names is the default."""

import re
from collections.abc import Mapping

import pytest

from support.repository import ROOT, data_of, text_of
from vllm_specdec_exporter.config.thresholds import Thresholds

SENTENCES: dict[str, list[str]] = data_of("tests/docs/thresholds.yml")
DEFAULTS = dict(Thresholds().items())
_NAME = re.compile(r"{(\w+):")
NAMED: list[tuple[str, str, str]] = []
for _path, _sentences in SENTENCES.items():
    for _sentence in _sentences:
        _names = sorted(set(_NAME.findall(_sentence)))
        NAMED += [(_path, _sentence, name) for name in _names]
#: Tables of these are generated from the defaults.
GENERATED = {"docs/reference/metrics.md", "docs/reference/cost-profiles.md"}
#: How far from its name a number may stand and still be read as its value.
NEAR = 40
WORDS = {0.1: "a tenth", 0.2: "a fifth", 0.25: "a quarter", 0.5: "half"}


class Number(float):
    """A number that is written as the documents do."""

    def __format__(self, form: str) -> str:
        if form == "word":
            return WORDS.get(float(self), f"{float(self):g}")
        if form == "%":
            return f"{100 * self:g} %"
        return format(float(self), form)


def written(sentence: str, values: Mapping[str, float]) -> str:
    return sentence.format_map({name: Number(value) for name, value in values.items()})


def documents() -> list[str]:
    pages = (*ROOT.glob("docs/**/*.md"), *ROOT.glob("alerts/**/*.md"))
    paths = {str(page.relative_to(ROOT)) for page in pages}
    return sorted((paths | {"README.md"}) - GENERATED)


@pytest.mark.parametrize("path", SENTENCES)
def test_the_numbers_are_the_defaults(path: str) -> None:
    """Of every sentence in the table."""
    sentences = [written(sentence, DEFAULTS) for sentence in SENTENCES[path]]
    assert [each for each in sentences if each not in text_of(path)] == []


@pytest.mark.parametrize(("path", "sentence", "name"), NAMED)
def test_a_changed_default_leaves_no_sentence_as_it_is(
    path: str, sentence: str, name: str
) -> None:
    """So whoever changes a default is told of each sentence about it."""
    changed = {**DEFAULTS, name: DEFAULTS[name] + 0.1}
    assert written(sentence, changed) not in text_of(path)


@pytest.mark.parametrize("path", documents())
def test_every_threshold_that_is_named_with_its_number_is_in_the_table(
    path: str,
) -> None:
    """Else a changed default would leave a sentence wrong."""
    for line in text_of(path).splitlines():
        covered = set()
        for sentence in SENTENCES.get(path, []):
            if written(sentence, DEFAULTS) in line:
                covered.update(_NAME.findall(sentence))
        named = {name for name in DEFAULTS if names_default(line, name)}
        assert named <= covered, line


def names_default(line: str, name: str) -> bool:
    """Whether a line has the name of a threshold, and its default beside it."""
    value = Number(DEFAULTS[name])
    forms = {f"{value:{form}}" for form in ("g", ".1f", ".2f", "%", "word")}
    number = "|".join(map(re.escape, forms - {"1", "1.00"}))
    for match in re.finditer(rf"`{name}`", line):
        beside = line[max(0, match.start() - NEAR) : match.end() + NEAR]
        if re.search(rf"(?<![\w.,=])(?:{number})(?![\w.]*\d)", beside):
            return True
    return False
