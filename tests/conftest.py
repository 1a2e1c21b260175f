"""For all tests: the longest first, so that all workers end together; how property tests draw examples."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# No deadlines: the speed of a machine says nothing about the code. New examples at every run of a person,
# the same ones at every run that decides whether a change lands: it is not to fail for another's defect.
settings.register_profile("drawn", deadline=None, max_examples=60, derandomize=False, print_blob=True)
settings.register_profile("fixed", settings.get_profile("drawn"), derandomize=True, database=None)
settings.load_profile("fixed" if os.environ.get("CI") else "drawn")

# A shell that runs this in the background has it ignore SIGINT, and with it each program that a test starts
# in order to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Files that take minutes, the longest first.
_LONG = (
    "replay/test_month.py",
    "replay/test_faults.py",
    "paging/test_paging.py",
    "dashboards/test_pictures.py",
    "alerts/test_rules.py",
    "dashboards/test_executed.py",
    "scaling/test_vmalert.py",
    "scaling/test_victoriametrics.py",
    "scaling/test_federation.py",
    "helm/test_chart_safety.py",
    "helm/test_chart_matrix.py",
    "helm/test_chart_random.py",
    "docker/test_image.py",
    "docker/test_topology.py",
    "docs/test_run_runbooks.py",
    "docs/test_run_pages.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the order is otherwise as collected."""

    def rank(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((n for n, name in enumerate(_LONG) if path.endswith(name)), len(_LONG))

    items.sort(key=rank)
