"""Which Alertmanagers the tests run: the installed one, and Debian's newest."""

import pytest

from support.alertmanager import PACKAGE
from support.newer import of_suite


@pytest.fixture(scope="module", params=["installed", "newest"])
def program(request: pytest.FixtureRequest) -> str:
    """The path of an Alertmanager: what one of them silences or sends, so does the
    other.
    """
    return of_suite(request.param, "prometheus-alertmanager", PACKAGE)
