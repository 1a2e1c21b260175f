"""Which Alertmanagers the tests run: the installed one, and Debian's newest."""

import pytest

from support.alertmanager import PACKAGE
from support.newest import newest_program
from support.programs import find_program


@pytest.fixture(scope="module", params=["installed", "newest"])
def program(request: pytest.FixtureRequest) -> str:
    """The path of an Alertmanager: what one of them silences or sends, so does the
    other.
    """
    if request.param == "installed":
        return find_program("prometheus-alertmanager", PACKAGE)
    newest = newest_program("prometheus-alertmanager", PACKAGE)
    if newest is None:
        pytest.skip("Debian's newest Alertmanager cannot be had here")
    return newest
