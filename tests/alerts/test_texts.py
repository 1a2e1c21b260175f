"""What a person reads of an alert states nothing that is not known: every text, with
estimates as they are, unknown, and absent.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.case import all_cases, all_texts, full_name
from alerts.lint import read_bundle
from alerts.promtool import History, needed_groups, run_tests, write_tests
from alerts.world import Phase, World

#: What no text may have: values that are none, labels without one, counts in fractions.
_NO_VALUE = re.compile(
    r"NaN|Inf|no value|%!|\"\"|''|"
    r"\d\.\d+ (?:answers|drafts|requests|engines|failed|rejected)(?! run per)"
)
#: How texts write a speed.
_SPEED = re.compile(r"\d\.\d\dx")
#: How they say that it is not known.
_UNKNOWN = "the verdict is unknown"
#: What they are made of where they depend on an estimate.
_ESTIMATED = re.compile(r"vllm_specdec_(?:payoff|\w*speedup|recommendation)\b")
#: Nobody wants to wait for a day of promtool.
_LONG = 90

Text = Mapping[str, str]


def _unknown(phase: Phase) -> Phase:
    if phase.speedup is None:
        return phase
    interval = (0.7 * phase.speedup, 1.5 * phase.speedup)
    advice = {"action": "insufficient_data", "recommended_k": None}
    return replace(
        phase, speedup=None, guess=phase.speedup, interval=interval, **advice
    )


def _probable_loss(phase: Phase) -> Phase:
    if phase.speedup is None or phase.speedup >= 1:
        return _unknown(phase)
    return replace(phase, speedup=None, guess=0.8, interval=(0.6, 1.08), loss=0.96)


def _absent(phase: Phase) -> Phase:
    return replace(_unknown(phase), guess=None, interval=None, loss=None)


def _asked() -> dict[str, list[int]]:
    """Return the minutes of a case in which something fires that depends on an
    estimate: the first case of each rule.
    """
    dependent = {
        rule.name
        for rule in read_bundle().alerts
        if _ESTIMATED.search(str(needed_groups({rule.name})))
    }
    rules: set[tuple[str, ...]] = set()
    asked: dict[str, list[int]] = {}
    for text in all_texts():
        shown = {
            (text["alert"], one["labels"]["severity"], one["labels"].get("action", ""))
            for one in text["alerts"]
        }
        if full_name(text["alert"]) not in dependent or text["minute"] > _LONG:
            continue
        if shown - rules:
            rules |= shown
            asked.setdefault(text["case"], []).append(text["minute"])
    return asked


def _rendered(
    treat: Callable[[Phase], Phase], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Text]:
    """Return the annotations of all that fires where engines are as `treat` has them:
    promtool shows what it did not expect.
    """
    gauges = World._gauges

    def treated(world: World, phase: Phase, *more: Any) -> None:
        gauges(world, treat(phase), *more)

    monkeypatch.setattr(World, "_gauges", treated)
    asked = _asked()
    cases = [case for case in all_cases() if case.name in asked]
    histories = [
        History(
            case.name,
            case.world(),
            texts=[
                {"eval_time": f"{minute}m", "alertname": full_name(case.alert)}
                for minute in asked[case.name]
            ],
        )
        for case in cases
    ]
    path = write_tests(
        folder, *histories, rules={full_name(case.alert) for case in cases}
    )
    shown = re.findall(r"^ +Annotations:\{(.*)\}$", run_tests(path), re.MULTILINE)
    return [dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', one)) for one in shown]


def _complaints(texts: Iterable[Text]) -> list[Text]:
    return [
        text
        for text in texts
        if any(
            _NO_VALUE.search(said)
            for name, said in text.items()
            if not name.endswith("_url")
        )
        or not all(text.get(name, "-") for name in ("value", "threshold", "sample"))
    ]


def test_no_text_has_a_value_that_is_none_or_a_fraction_of_a_count() -> None:
    texts = [one for text in all_texts() for one in text["alerts"]]
    assert len(texts) > len(read_bundle().alerts)
    said = [{k: v for k, v in one.items() if k != "labels"} for one in texts]
    assert _complaints(said) == []


@pytest.mark.parametrize("treat", [_unknown, _probable_loss, _absent])
def test_what_is_unknown_is_not_stated(
    treat: Callable[[Phase], Phase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _rendered(treat, tmp_path, monkeypatch)
    assert len(texts) > 3
    assert _complaints(texts) == []
    stated = [
        text
        for text in texts
        if any(
            _SPEED.search(said) for name, said in text.items() if name != "threshold"
        )
        and _UNKNOWN not in text["description"]
    ]
    assert stated == []
    told = any(_UNKNOWN in text["description"] for text in texts)
    assert told == (treat is _probable_loss)
