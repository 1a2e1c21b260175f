"""Values of how single requests are seen: the tap in front of vLLM, and what a gateway pushes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .value import BOOLEAN, NAME, PORT, Section, Value

if TYPE_CHECKING:
    from .value import Schema

#: A key of a Secret.
_KEY: Schema = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}

TAP = Section(
    "The tap",
    "A second port of the container, through which clients reach vLLM, and which sees what each request "
    "drafted. It sees nothing until vLLM's Service leads there: "
    "[how](../../docs/deployment.md#the-tap-with-the-chart). "
    "How requests are told apart is set by `exporter.settings`: `requests.*`.",
    (
        Value(
            "tap.enabled",
            False,
            BOOLEAN,
            "Whether the container listens there. It also opens the port in `networkPolicy`, in whichever "
            "release that is.",
        ),
        Value("tap.port", 9852, PORT, "Its port, called `tap`. No other container of the pod may have it."),
        Value(
            "tap.upstream",
            "",
            {"type": "string", "pattern": r"^$|^https?://[^\s/?#@]+/?$|^unix:/[^\s:]+$"},
            "The vLLM that it stands before: `http://host:port`, `https://host:port` or "
            "`unix:/path/to.sock`. Empty for that of `exporter.vllmUrls`, where it is one.",
        ),
        Value(
            "tap.askForUsage",
            False,
            BOOLEAN,
            "Whether it asks vLLM for the usage of streams whose clients did not, and takes it out of the "
            "answer again: without it such streams have no record.",
        ),
        Value(
            "tap.drainTimeout",
            "25s",
            {"type": "string", "pattern": "^[0-9]{1,5}(ms|s|m|h)$"},
            "How long requests under way may hold up its end. A native sidecar ends after vLLM, when there "
            "are none; an ordinary container needs a `terminationGracePeriodSeconds` above it.",
        ),
        Value(
            "tap.tls.existingSecret",
            "",
            NAME,
            "Secret with the certificate that clients see; empty for http. It must be in the namespace of "
            "the pod: until it is there, the tap does not listen.",
        ),
        Value("tap.tls.certKey", "tls.crt", _KEY, "Its key with the certificate."),
        Value("tap.tls.keyKey", "tls.key", _KEY, "Its key with the private key."),
    ),
)

PUSH = Section(
    "Push",
    "A gateway that sees the answers anyway can tell the exporter about them: `POST /api/v1/requests` on "
    "`exporter.port`.",
    (
        Value(
            "push.existingSecret",
            "",
            NAME,
            "Secret with the bearer token that it shows; empty: nobody may push. It must be in the namespace "
            "of the pod; until it is there, the sidecar stands by. A tap goes on relaying meanwhile.",
        ),
        Value("push.key", "token", _KEY, "Its key with the token."),
    ),
)
