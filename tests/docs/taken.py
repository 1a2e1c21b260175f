"""Blocks that other tests run or compare: which, and where. The inventory takes their word for it.

A test here names the page that it reads; that it does is checked in test_inventory.py.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from docs.inventory import Block

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Taken:
    """Blocks of a page, or of several, that a test has.

    Attributes:
        page: a pattern of paths.
        languages: of the blocks.
        test: the test module, from the folder of tests; it names the page.
        holding: what the blocks have in them; empty for every block of these languages.
    """

    page: str
    languages: tuple[str, ...]
    test: str
    holding: str = ""

    def names_its_page(self) -> bool:
        """Tell whether the test speaks of the page."""
        return Path(self.page).name in (TESTS / self.test).read_text("utf-8")

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


def taken(block: Block) -> Taken | None:
    """Return what has a block, `None` where nothing does."""
    return next((one for one in TAKEN if one.has(block)), None)
