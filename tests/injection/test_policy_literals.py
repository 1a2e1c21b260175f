"""Any value that a chart can hold arrives in the pod as it is.

YAML becomes CEL, and CEL becomes JSON.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from injection.pods import pod
from injection.policy_server import admit
from injection.rendered_policy import policy, sidecar, volumes

pytestmark = pytest.mark.full

#: Texts that a template or an escape is likely to get wrong.
NASTY = (
    '"',
    "'",
    "\\",
    "\\n",
    "\n",
    "a\n  b\n",
    "\t",
    "${x}",
    "$(POD)",
    "{{ .Values.image }}",
    "`raw`",
    "",
    "</script>&",
    "é😀\u2028",
    '""" + object.spec + """',
    "\\u0041",
    "%s %d",
    " : # ",
    "null",
    "1e3",
    "0x1f",
    "- a",
    "|",
)

#: Helm's toYaml gives up on these, for the whole list; the chart refuses them
#: (test_chart_validation).
_NOT_IN_YAML = {
    "exclude_characters": [chr(code) for code in range(0x7F, 0xA0)],
    "codec": "utf-8",
}
_texts = st.one_of(
    st.sampled_from(NASTY), st.text(st.characters(**_NOT_IN_YAML), max_size=20)
)
_scalars = st.one_of(
    _texts, st.booleans(), st.integers(-(2**31), 2**53 - 1), st.just(0.5)
)
_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)
    ),
)
_ARGS = st.lists(_texts.map(lambda text: f"--x={text}"), max_size=4)


@given(args=_ARGS, tree=_trees)
@example(args=[f"--x={text}" for text in NASTY], tree={text: [text] for text in NASTY})
@example(
    args=[],
    tree=[
        1,
        "a",
        True,
        {},
        [],
        [[1], {"b": [False]}],
        0,
        -1,
        9850,
        65532,
        2**31,
        2**53 - 1,
    ],
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.timeout(300)
def test_any_value_arrives(args: list[str], tree: Any) -> None:
    """Texts with quotes, escapes and template syntax, whole numbers, mixed lists, maps
    with any key.
    """
    volume = {"name": "any", "csi": {"driver": "d", "volumeAttributes": tree}}
    values = {"exporter": {"extraArgs": args, "extraVolumes": [volume]}}
    admitted = admit(policy(values), pod())["spec"]
    assert admitted["initContainers"] == [sidecar(values)]
    assert admitted["initContainers"][0]["args"][2:] == args
    # Written out, for a port of 9850.0 equals 9850 and is no port.
    assert json.dumps(admitted["volumes"], sort_keys=True) == json.dumps(
        volumes(values), sort_keys=True
    )
    assert admitted["volumes"] == [volume]
