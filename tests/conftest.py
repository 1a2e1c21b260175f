"""For all tests: which of them `make test` leaves out, in which order they run, how
properties are tried.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, settings

# No deadlines: the speed of a machine says nothing about the code. New examples at
# every run of a person, the same ones at every run that decides whether a change lands:
# it is not to fail for another's defect.
_FIXED = bool(os.environ.get("CI"))
settings.register_profile(
    "few",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=25,
    derandomize=_FIXED,
    database=None if _FIXED else settings.default.database,
    print_blob=True,
)
settings.register_profile("many", settings.get_profile("few"), max_examples=75)
settings.load_profile("few")

# A shell that runs this in the background has it ignore SIGINT, and with it each
# program that a test starts in order to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Files that take half a minute to twenty, the longest first: one that begins late
#: keeps a single worker busy at the end.
_LONG = (
    "alerts/test_rules.py",
    "replay/test_readers.py",
    "replay/test_faults.py",
    "prometheus/test_restart.py",
    "scaling/test_typed_series.py",
    "structure/test_recipes.py",
    "dashboards/test_executed.py",
    "scaling/test_played.py",
    "replay/test_month.py",
    "docs/test_run_blocks.py",
    "paging/test_paging.py",
    "release/test_version.py",
    "service/test_discovery.py",
    "dashboards/test_pictures.py",
    "faults/test_responses.py",
    "attacks/test_listeners.py",
    "alerts/test_requests_victoriametrics.py",
    "alertmanager/test_inhibition.py",
    "helm/test_chart_null.py",
    "cli/test_demo.py",
    "alerts/test_runbooks.py",
    "faults/test_disk.py",
    "economics/test_known_truth.py",
    "webconfig/test_rotation.py",
    "prometheus/test_prometheus.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests, and put the longest files first; the order is otherwise as
    collected.
    """

    def rank(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next(
            (n for n, name in enumerate(_LONG) if path.endswith(name)), len(_LONG)
        )

    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
    items.sort(key=rank)


# --- what was left out is said at the end, with the command that runs it

#: How many tests this process left out, by the command that runs them.
_LEFT_OUT: Counter[str] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what `make test` leaves out."""
    for item in items:
        if item.get_closest_marker("vllm"):
            _LEFT_OUT["make test-vllm"] += 1
        elif item.get_closest_marker("full"):
            _LEFT_OUT["make test-all"] += 1


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Let the process that reports know it, where tests run in several."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = dict(_LEFT_OUT)
    yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over what a worker left out: all of them leave out the same."""
    _LEFT_OUT.update(
        Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - _LEFT_OUT
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run, and how to."""
    for command, count in sorted(_LEFT_OUT.items()):
        terminalreporter.write_line(f"not run: {count:,} tests of `{command}`")
