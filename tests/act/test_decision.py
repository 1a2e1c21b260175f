"""What an alert asks for, or why it is not acted upon."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import alert_document, alert_of, body_of, decision_of
from vllm_specdec_exporter.commands.act.decision import (
    AlertAction,
    EventKind,
    NoAction,
    PayloadError,
    decide,
    decode,
    evaluate,
)


def test_every_shipped_action_is_understood() -> None:
    """Action, K and the model come from the labels."""
    numbers = {"disable": 0, "enable": 3, "increase_k": 5, "decrease_k": 2}
    for action, k in {**numbers, "switch_method": None, "measure": None}.items():
        found = decision_of(action, namespace="prod", cluster="eu")
        assert (found.action, found.recommended_k) == (AlertAction(action), k)
        assert found.model == ("eu", "prod", "llama")


SKIPPED, REJECTED = EventKind.SKIPPED, EventKind.REJECTED
REFUSED: list[tuple[str, dict[str, str], EventKind, str]] = [
    ("", {}, SKIPPED, "the alert has no label action"),
    ("reboot", {}, SKIPPED, "unknown action 'reboot'"),
    ("\x1b[2J", {}, SKIPPED, "unknown action '\\x1b[2J'"),
    ("enable", {"recommended_k": ""}, REJECTED, "enable needs a whole number from 1 to 999"),
    ("increase_k", {"recommended_k": "+5"}, REJECTED, "recommended_k '+5'"),
    ("increase_k", {"recommended_k": "٥"}, REJECTED, "a whole number"),
    ("increase_k", {"recommended_k": "5\n"}, REJECTED, "a whole number"),
    ("decrease_k", {"recommended_k": "0"}, REJECTED, "from 1 to 999"),
    ("disable", {"recommended_k": "2"}, REJECTED, "with disable it is 0"),
    ("measure", {"recommended_k": "2"}, REJECTED, "measure has none"),
    ("disable", {"model_name": "--all"}, REJECTED, "label model_name '--all' begins with -"),
    ("disable", {"cluster": "a\nb"}, REJECTED, "contains control characters"),
    ("disable", {"model_name": "a\u202eb"}, REJECTED, "contains control characters"),
    ("disable", {"model_name": "m" * 1025}, REJECTED, "longer than 1024"),
    ("disable", {"alertname": "\x1b]0;x"}, REJECTED, "label alertname"),
    ("disable", {"alertname": "VLLMSpecDecodeHarmful"}, REJECTED, "may not request disable"),
    ("disable", {"starts_at": "soon"}, REJECTED, "startsAt 'soon' is no RFC 3339 time"),
    ("disable", {"starts_at": "0001-01-01T00:00:00+09:00"}, REJECTED, "startsAt"),
]


def test_what_cannot_be_acted_upon_says_why() -> None:
    """No command is made of it."""
    for action, labels, kind, why in REFUSED:
        found = decide(alert_of(action, **labels))
        assert isinstance(found, NoAction), (action, labels)
        assert (found.kind, why in found.why) == (kind, True), found
        assert found.why.isascii()
        assert found.why.isprintable()


def test_a_repeat_is_the_same_decision_and_a_new_firing_is_another() -> None:
    """The begin of the alert tells them apart, in whatever time zone it is written."""
    key = decision_of("disable", starts_at="2026-03-01T12:00:00Z").key

    assert decision_of("disable", starts_at="2026-03-01T13:00:00.000+01:00", severity="info").key == key
    assert decision_of("disable", starts_at="2026-03-01T12:00:01Z").key != key
    assert decision_of("enable", starts_at="2026-03-01T12:00:00Z").key != key
    assert decision_of("disable", starts_at="2026-03-01T12:00:00Z", cluster="us").key != key


def outcomes(*alerts: dict[str, object]) -> list[str]:
    """Each alert's action where it is acted upon, else why not."""
    return [
        request.no_action.why if request.no_action else str(request.decision and request.decision.action)
        for request in evaluate(decode(body_of(*alerts)))
    ]


def test_disable_wins_over_whatever_else_is_asked_of_the_model() -> None:
    """The others are skipped, and say what they contradict."""
    raising, disable = alert_document("increase_k"), alert_document("disable")
    assert outcomes(raising, disable) == [
        "one payload asks for disable, increase_k (K 5) for the same model: disable wins",
        "disable",
    ]


def test_without_disable_a_contradiction_leaves_nothing() -> None:
    """Another action, or another K: nobody knows which is right."""
    for other in (alert_document("decrease_k"), alert_document("increase_k", recommended_k="7")):
        found = outcomes(alert_document("increase_k"), other)
        assert all("none of them is acted upon" in why for why in found)


def test_no_contradiction() -> None:
    """Other models, alerts that are over or not understood, and the same once more do not contradict."""
    for other in (
        alert_document("disable", model_name="mistral"),
        alert_document("disable", namespace="elsewhere"),
        alert_document("disable", status="resolved"),
        alert_document("disable", recommended_k="9"),
        alert_document("increase_k", starts_at="2026-03-02T12:00:00Z"),
    ):
        assert outcomes(alert_document("increase_k"), other)[0] == "increase_k", other


def test_the_hint_to_measure_gives_way() -> None:
    """It changes nothing, so it contradicts nothing; alone it is a decision like any other."""
    measure = alert_document("measure", recommended_k="")
    assert outcomes(measure) == ["measure"]
    assert outcomes(alert_document("decrease_k"), measure) == [
        "decrease_k",
        "one payload asks for decrease_k (K 2), measure for the same model: to measure is not needed first",
    ]


def test_of_alerts_that_ask_for_the_same_the_oldest_is_acted_upon() -> None:
    """`disable` has several reasons; the others are skipped behind it, and know what they are the same as."""
    young = alert_document("disable", reason="speedup", starts_at="2026-03-01T12:00:02Z")
    old = alert_document("disable", reason="acceptance", starts_at="2026-03-01T12:00:01Z")
    twin = alert_document("disable", reason="latency", starts_at="2026-03-01T12:00:01Z")
    other = alert_document("disable", model_name="mistral")
    requests = evaluate(decode(body_of(young, old, twin, other)))

    assert [request.alert.label("reason") for request in requests] == ["acceptance", "", "speedup", "latency"]
    assert [request.no_action is None for request in requests] == [True, True, False, False]
    assert requests[0].decision is not None
    assert [request.same_as for request in requests[2:]] == [requests[0].decision.key] * 2


# --- the payload


def test_a_key_that_stands_twice_is_the_same_to_the_script_and_to_the_decision() -> None:
    """No reader of the same alert sees another value than the one that was checked."""
    body = body_of(alert_document("disable")).replace(b'"action": ', b'"action": "enable", "action": ')
    (alert,) = decode(body)

    assert alert.label("action") == "disable"
    assert alert.body.count(b'"action"') == 1


REFUSED_PAYLOADS = [
    (b"{", "not a webhook payload"),
    (b"[]", "Expected `object`"),
    (b'"\\ud800"', "not a webhook payload"),
    (b"[" * 100_000, "not a webhook payload"),
    (b'{"version":"4"}', "missing required field `alerts`"),
    (body_of(version="3"), "its version is '3', and version 4 is understood"),
    (b'{"version":"4","alerts":[{}]}', "alert 0 (from 0) is not understood"),
    (body_of({**alert_document(), "status": "odd"}), "alert 0 (from 0) is not understood: Invalid enum"),
    (body_of(alert_document(), {**alert_document(), "labels": {"a": 1}}), "alert 1 (from 0)"),
]


def test_any_other_payload_is_refused_in_one_line() -> None:
    """The message says why."""
    for body, why in REFUSED_PAYLOADS:
        with pytest.raises(PayloadError) as caught:
            decode(body)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)


@given(
    st.binary()
    | st.builds(
        lambda x: json.dumps(x).encode(),
        st.recursive(
            st.none() | st.booleans() | st.text() | st.just("4"),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["version", "alerts", "labels"]), inner)
            ),
        ),
    )
)
def test_no_body_breaks_it(body: bytes) -> None:
    """Whatever comes in, there are alerts or a line that says why not."""
    with contextlib.suppress(PayloadError):
        assert all(alert.starts_at is not None for alert in decode(body))
