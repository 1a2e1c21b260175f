"""Blocks that other tests run or compare: which, and where. The inventory takes their word for it.

A test here names the page that it reads; that it does is checked in test_inventory.py.
"""

import re
from fnmatch import fnmatch
from typing import NamedTuple

from docs.inventory import Block


class Taken(NamedTuple):
    """Blocks of some pages, in these languages, that hold a pattern, and the test module that has them."""

    page: str
    languages: tuple[str, ...]
    test: str
    holding: str = ""

    def has(self, block: Block) -> bool:
        """Tell whether a block is one of these."""
        return (
            fnmatch(block.path, self.page)
            and block.language in self.languages
            and re.search(self.holding, block.text, re.MULTILINE) is not None
        )


_DEPLOYMENT = "docs/deployment.md"

TAKEN = (
    Taken("alerts/runbooks/*.md", ("promql",), "alerts/test_runbooks.py"),
    Taken("docs/act.md", ("yaml", "python", "json"), "act/test_docs.py"),
    Taken("docs/act.md", ("sh",), "act/test_docs.py", "^#!/bin/sh$|^curl "),
    Taken("docs/push.md", ("yaml", "python", "json"), "client/test_docs.py"),
    Taken("docs/push.md", ("sh",), "client/test_docs.py", "^curl "),
    Taken("docs/web-configuration.md", ("yaml",), "webconfig/test_docs.py"),
    Taken("docs/machine.md", ("sh",), "systemd/test_bare_metal.py", "^make wheel$"),
    Taken("docs/plan.md", ("sh", "text"), "plan/test_command.py"),
    Taken("helm/kustomize/README.md", ("yaml",), "injection/test_kustomize.py"),
    Taken(_DEPLOYMENT, ("yaml",), "injection/test_policy_admission.py", "^injection:|exporter/inject"),
    Taken(_DEPLOYMENT, ("yaml",), "docs/test_library_chart.py", "^# (Chart|values).yaml$|^# templates/"),
    Taken(
        "helm/examples/README.md",
        ("sh",),
        "recipes/test_recipe_readme.py",
        "^kubectl kustomize|rule_objects.py|^helm template specdec",
    ),
)


def taken(block: Block) -> bool:
    """Tell whether a test of another folder has a block."""
    return any(one.has(block) for one in TAKEN)
