"""The payload of Alertmanager's webhook."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import STARTS_AT, alert_document, body_of
from vllm_specdec_exporter.commands.act.decision import PayloadError, decode


def test_alerts_come_in_order_with_what_they_say() -> None:
    """Status, labels and begin are read; the body is the alert as it came."""
    first, second = alert_document("disable"), alert_document("measure", status="resolved")
    found = decode(body_of(first, second))

    assert [(alert.firing, alert.label("action")) for alert in found] == [
        (True, "disable"),
        (False, "measure"),
    ]
    assert found[0].starts_at == STARTS_AT
    assert [json.loads(alert.body) for alert in found] == [first, second]
    assert found[0].label("namespace") == ""


def test_a_key_that_stands_twice_is_the_same_to_the_script_and_to_the_decision() -> None:
    """No reader of the same alert sees another value than the one that was checked."""
    body = body_of(alert_document("disable")).replace(b'"action": ', b'"action": "enable", "action": ')
    (alert,) = decode(body)

    assert alert.label("action") == "disable"
    assert alert.body.count(b'"action"') == 1


REFUSED = [
    (b"", "not a webhook payload"),
    (b"{", "not a webhook payload"),
    (b"[]", "Expected `object`"),
    (b"\xff", "not a webhook payload"),
    (b'"\\ud800"', "not a webhook payload"),
    (b"[" * 100_000, "not a webhook payload"),
    (b'{"version":"4"}', "missing required field `alerts`"),
    (b'{"alerts":[]}', "missing required field `version`"),
    (body_of(version="3"), "its version is '3', and version 4 is understood"),
    (b'{"version":"4","alerts":[{}]}', "alert 0 (from 0) is not understood"),
    (body_of({**alert_document(), "status": "odd"}), "alert 0 (from 0) is not understood: Invalid enum"),
    (body_of(alert_document(), {**alert_document(), "labels": {"a": 1}}), "alert 1 (from 0)"),
]


def test_anything_else_is_refused_in_one_line() -> None:
    """The message says why."""
    for body, why in REFUSED:
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
