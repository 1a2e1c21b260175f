"""What an alert asks for, or why it is not acted upon."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import alert_document, body_of, decision_of
from support.builders import refusal
from vllm_specdec_exporter.commands.act.decision import decide


def test_every_shipped_action_is_understood() -> None:
    """Action, K and the model come from the labels."""
    numbers = {"disable": "0", "enable": "3", "increase_k": "5", "decrease_k": "2"}
    for action, k in {**numbers, "switch_method": "", "measure": ""}.items():
        decision = decision_of(action, namespace="prod", cluster="eu")
        assert decision.no_action is None, action
        assert decision.label("action") == action, action
        assert decision.recommended_k == k, action
        assert json.loads(decision.model) == ["eu", "prod", "llama"], action


REFUSED = [
    *yaml.safe_load(Path(__file__).with_name("refused.yml").read_text("utf-8")),
    ("disable", {"model_name": "m" * 1025}, "rejected", "label model_name"),
]


@pytest.mark.parametrize("status", ["firing", "resolved"])
@pytest.mark.parametrize(("action", "labels", "kind", "why"), REFUSED)
def test_what_cannot_be_acted_upon_says_why(
    action: str, labels: dict[str, str], kind: str, why: str, status: str
) -> None:
    """No command is made of it, whether it fires or not."""
    decision = decision_of(action, **labels, status=status)
    assert decision.no_action == kind
    assert why in decision.why
    assert decision.why.isascii()
    assert decision.why.isprintable()


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"starts_at": "2026-03-01T13:00:00.000+01:00", "severity": "info"}, True),
        ({"starts_at": "2026-03-01T12:00:01Z"}, False),
        ({"recommended_k": "7"}, False),
        ({"cluster": "us"}, False),
    ],
)
def test_a_repeat_has_the_same_identity_and_a_new_firing_another(
    changes: dict[str, str], is_same: bool
) -> None:
    """The begin of the alert makes the difference, in whatever time zone it is written;
    K does too.
    """
    labels = {"starts_at": "2026-03-01T12:00:00Z"}
    first = decision_of("increase_k", **labels)
    second = decision_of("increase_k", **labels | changes)
    assert (second.identity == first.identity) is is_same


def test_names_of_different_models_never_collide() -> None:
    """Whatever characters their labels have."""
    places = [
        ("a", "b/c", "d"),
        ("a/b", "c", "d"),
        ("a", "b", "c/d"),
        ('a","b', "c", "d"),
        ("", "a", "b/c/d"),
        ("eu", "prod", "llama"),
        ("eu", "prod", "Llama"),
        ("eu", "prod", "ll\N{CYRILLIC SMALL LETTER A}ma"),
        ("eu", "prod", "llama\u0300"),
    ]
    models = {
        decision_of(cluster=cluster, namespace=namespace, model_name=name).model
        for cluster, namespace, name in places
    }
    assert len(models) == len(places)


RAISE = alert_document("increase_k")
RAISE_MORE = alert_document("increase_k", recommended_k="7")
LATER = alert_document("increase_k", starts_at="2026-03-02T12:00:00Z")
MEASURE = alert_document("measure", recommended_k="")
IN_THE_WAY = "the payload requests {} for the same model"
EXCLUDED = "the payload requests {}, {} for one model: none is carried out"
BAD_K = "label recommended_k '9': allowed with disable: 0 or none"
CONTRADICTIONS = [
    ([RAISE, alert_document("disable")], [IN_THE_WAY.format("disable"), "disable"]),
    (
        [RAISE, alert_document("decrease_k")],
        [EXCLUDED.format("decrease_k 2", "increase_k 5")] * 2,
    ),
    ([RAISE, RAISE_MORE], [EXCLUDED.format("increase_k 5", "increase_k 7")] * 2),
    # Other models, and alerts that are over or not understood, do not contradict.
    ([RAISE, alert_document(model_name="mistral")], ["increase_k", "disable"]),
    ([RAISE, alert_document(namespace="elsewhere")], ["increase_k", "disable"]),
    (
        [RAISE, alert_document(status="resolved")],
        ["increase_k", "the alert no longer fires"],
    ),
    ([RAISE, alert_document(recommended_k="9")], ["increase_k", BAD_K]),
    # Each method of a model with several is decided on alone.
    (
        [alert_document("disable", method=name) for name in ("eagle3", "ngram")],
        ["disable", "disable"],
    ),
    # To measure changes nothing, so it gives way; alone it is a decision like any
    # other.
    ([MEASURE], ["measure"]),
    ([MEASURE, RAISE], [IN_THE_WAY.format("increase_k 5"), "increase_k"]),
    # Of those that request the same, the first is acted upon.
    (
        [RAISE, LATER, RAISE],
        ["increase_k", *["another alert of the payload requests the same"] * 2],
    ),
]


@pytest.mark.parametrize(("alerts", "expected"), CONTRADICTIONS)
def test_one_payload_changes_a_model_once(
    alerts: list[dict[str, object]], expected: list[str]
) -> None:
    """`disable` wins; otherwise different changes exclude each other.

    Each alert's action if it is acted upon, else the reason.
    """
    decisions = decide(body_of(*alerts))
    assert [each.why or each.label("action") for each in decisions] == expected


# --- the payload


def test_a_key_that_stands_twice_is_the_same_to_the_script_and_to_the_decision() -> (
    None
):
    """No reader of the same alert sees another value than the one that was checked."""
    twice = b'"action": "enable", "action": '
    (decision,) = decide(body_of(alert_document()).replace(b'"action": ', twice))
    assert decision.label("action") == "disable"
    assert decision.body.count(b'"action"') == 1


REFUSED_PAYLOADS = [
    (b"{", "not a webhook payload"),
    (b"[]", "Expected `object`"),
    (b'"\\ud800"', "not a webhook payload"),
    (b"[" * 100_000, "not a webhook payload"),
    (b'{"version":"4"}', "missing required field `alerts`"),
    (body_of(version="3"), "Invalid enum value '3' - at `$.version`"),
    (b'{"version":"4","alerts":[{}]}', "missing required field"),
    (body_of({**alert_document(), "status": "odd"}), "Invalid enum value 'odd'"),
    (
        body_of(alert_document(), {**alert_document(), "labels": {"a": 1}}),
        "Expected `str`, got `int`",
    ),
    (body_of(*[alert_document()] * 501), "Expected `array` of length <= 500"),
]


@pytest.mark.parametrize(
    ("body", "why"), REFUSED_PAYLOADS, ids=[why for _, why in REFUSED_PAYLOADS]
)
def test_any_other_payload_is_refused_in_one_line(body: bytes, why: str) -> None:
    """The message says why."""
    message = refusal(ValueError, decide, body)
    assert why in message
    assert "\n" not in message


@given(
    st.binary()
    | st.builds(
        lambda alerts: json.dumps({"version": "4", "alerts": alerts}).encode(),
        st.lists(
            st.fixed_dictionaries(
                {"status": st.sampled_from(["firing", "resolved"]) | st.text()},
                optional={
                    "labels": st.dictionaries(st.text(), st.text()),
                    "startsAt": st.text() | st.integers(),
                },
            ),
            min_size=1,
        ),
    )
)
def test_any_body_gives_alerts_or_a_reason(body: bytes) -> None:
    """Whatever comes in, there are alerts or a line that says why not."""
    try:
        decisions = decide(body)
    except ValueError:
        return
    assert len(decisions) == len(json.loads(body)["alerts"])
    assert [each for each in decisions if not each.why and each.starts_at is None] == []
