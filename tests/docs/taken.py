"""Blocks that other tests run or compare: which, and where. The inventory takes their word for it.

A test here names the page that it reads; that it does is checked in test_inventory.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docs.inventory import Block


@dataclass(frozen=True)
class Taken:
    """Blocks of a page, or of several, that a test has.

    Attributes:
        page: a pattern of paths.
        languages: of the blocks.
        test: the test module, from the folder of tests.
        names: how the test names the page.
        holding: what the blocks have in them; empty for every block of these languages.
    """

    page: str
    languages: tuple[str, ...]
    test: str
    names: str
    holding: str = ""

    def has(self, block: Block) -> bool:
        """Tell whether a block is one of these."""
        return (
            fnmatch(block.path, self.page)
            and block.language in self.languages
            and re.search(self.holding, block.text, re.MULTILINE) is not None
        )


TAKEN = (
    Taken("alerts/runbooks/*.md", ("promql",), "alerts/test_runbooks.py", 'RUNBOOKS.glob("*.md")'),
    Taken("docs/act.md", ("yaml", "python", "json"), "act/test_docs.py", '"act.md"'),
    Taken("docs/act.md", ("sh",), "act/test_docs.py", '"act.md"', "^#!/bin/sh$|^curl "),
    Taken("docs/push.md", ("yaml", "python", "json"), "client/test_docs.py", '"push.md"'),
    Taken("docs/push.md", ("sh",), "client/test_docs.py", '"push.md"', "^curl "),
    Taken("docs/web-configuration.md", ("yaml",), "webconfig/test_docs.py", '"web-configuration.md"'),
    Taken("docs/bare-metal.md", ("sh",), "systemd/test_bare_metal.py", '"bare-metal.md"', "^make wheel$"),
    Taken("docs/plan.md", ("sh", "text"), "plan/test_command.py", '"plan.md"'),
    Taken("helm/kustomize/README.md", ("yaml",), "injection/test_kustomize.py", 'KUSTOMIZE / "README.md"'),
    Taken(
        "helm/vllm-specdec-exporter/README.md",
        ("yaml",),
        "injection/test_injection_readme.py",
        'CHART / "README.md"',
        "^injection:|vllm-specdec-exporter/inject",
    ),
    Taken(
        "helm/vllm-specdec-exporter/README.md",
        ("yaml",),
        "docs/test_library_chart.py",
        'CHART / "README.md"',
        "^# (Chart|values).yaml$|^# templates/",
    ),
    Taken(
        "helm/examples/README.md",
        ("sh",),
        "recipes/test_recipe_readme.py",
        'EXAMPLES / "README.md"',
        "^kubectl kustomize|rule_objects.py|^helm template specdec",
    ),
)


def taken(block: Block) -> Taken | None:
    """Return what has a block, `None` where nothing does."""
    return next((one for one in TAKEN if one.has(block)), None)
