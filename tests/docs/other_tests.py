"""Blocks that other tests run or compare: which, and where. The inventory relies on
this table.

A test here names the page that it reads; that it does is checked in test_inventory.py.
"""

import re
from fnmatch import fnmatch
from typing import NamedTuple

from docs.inventory import Block


class OtherTest(NamedTuple):
    """Blocks of some pages, in these languages, that hold a pattern, and the test
    module that has them.
    """

    page: str
    languages: tuple[str, ...]
    test: str
    holding: str = ""

    def has(self, block: Block) -> bool:
        """Return whether a block is one of these."""
        return (
            fnmatch(block.path, self.page)
            and block.language in self.languages
            and re.search(self.holding, block.text, re.MULTILINE) is not None
        )


_DEPLOYMENT = "docs/deployment.md"
_WEB_CONFIGURATION = r"^# (password|certificates|prometheus\.yml|probe)\b"

OTHER_TESTS = (
    OtherTest("alerts/runbooks/*.md", ("promql",), "alerts/test_runbooks.py"),
    OtherTest("docs/act.md", ("yaml", "json"), "act/test_docs.py"),
    OtherTest("docs/act.md", ("sh",), "act/test_docs.py", "^#!/bin/sh$|^curl "),
    OtherTest(
        "docs/requests.md",
        ("python", "json"),
        "client/test_docs.py",
        'push_request|"accepted"',
    ),
    OtherTest("docs/requests.md", ("sh",), "client/test_docs.py", "^curl "),
    OtherTest(
        "docs/operations.md", ("yaml",), "webconfig/test_docs.py", _WEB_CONFIGURATION
    ),
    OtherTest("README.md", ("sh",), "containers/run.sh", "^docker build "),
    OtherTest("README.md", ("console",), "history/test_command.py", " history http"),
    OtherTest(_DEPLOYMENT, ("sh",), "systemd/test_unit.py", "^make wheel$"),
    OtherTest("helm/kustomize/README.md", ("yaml",), "injection/test_kustomize.py"),
    OtherTest(
        _DEPLOYMENT,
        ("yaml",),
        "injection/test_policy_admission.py",
        "^injection:|exporter/inject",
    ),
    OtherTest(
        _DEPLOYMENT,
        ("yaml",),
        "docs/test_library_chart.py",
        "^# (Chart|values).yaml$|^# templates/",
    ),
    OtherTest(
        "helm/examples/README.md",
        ("sh",),
        "recipes/test_recipe_readme.py",
        "^kubectl kustomize|rule_objects.py|^helm template specdec",
    ),
)


def in_other_test(block: Block) -> bool:
    """Return whether a test of another folder has a block."""
    return any(other_test.has(block) for other_test in OTHER_TESTS)
