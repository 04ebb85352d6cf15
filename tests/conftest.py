# SPDX-License-Identifier: Apache-2.0
"""
Shared by all groups of tests: the markers that say how a test may run, and the stream of results that
tools/check reads.
"""

import json
import os
import signal

import pytest

# tools/check gives pytest a pipe and names it here. Without this variable (pytest typed by hand) no results
# are written.
RESULTS_FD = "TONY_CHECK_FD"
# Tests marked slow: "" = they do not run, "1" = they run with the others, "only" = the others do not run. `make
# check SLOW=...` sets it.
SLOW = os.environ.get("TONY_SLOW", "")

MARKERS = (
    "alone(reason): runs after all others with nothing beside it, because it measures, loads the machine or uses what there is once",
    "slow: only in `make check SLOW=1`, or with TONY_SLOW=1: it restarts daemons, trains or solves for long, and quicker tests cover most of it",
    "takes(seconds): starts before shorter tests when tests run side by side, so that the last to end is not a long one",
    "xdist_group(name): tests of one name run one after the other in the same process when tests run side by side",
)


def pytest_configure(config):
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    # A program that a shell starts in the background ignores SIGINT, and so do its children. Then the tests
    # could not interrupt their programs.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Only this process has the descriptor: not the workers of pytest-xdist, and not a pytest that a test starts.
    fd = os.environ.pop(RESULTS_FD, None)
    if fd:
        config.pluginmanager.register(Results(int(fd)), "tony-results")


def pytest_addoption(parser):
    parser.addoption("--alone", choices=["only", "not"], help="run only the tests marked `alone`, or all but those")


def seconds(item):
    marker = item.get_closest_marker("takes")
    return marker.args[0] if marker else 0


def deselect(config, items, unwanted):
    items[:] = [item for item in items if item not in unwanted]
    config.hook.pytest_deselected(items=unwanted)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        marker = item.get_closest_marker("alone")
        assert not marker or marker.args, f"{item.nodeid}: the marker `alone` needs the reason"
    if SLOW in ("", "only"):
        deselect(config, items, [item for item in items if (SLOW == "only") != bool(item.get_closest_marker("slow"))])
    wanted = config.getoption("--alone")
    if wanted:
        deselect(config, items, [item for item in items if (wanted == "only") != bool(item.get_closest_marker("alone"))])
    if hasattr(config, "workerinput"):
        items.sort(key=seconds, reverse=True)  # a stable sort: the tests of each file stay in order


class Results:
    """
    Writes one line of JSON for each phase of each test: its name, its outcome and, if it has not passed,
    everything known about it.
    """

    def __init__(self, fd):
        os.set_inheritable(fd, False)
        self.pipe = os.fdopen(fd, "w", buffering=1)

    def write(self, **fields):
        self.pipe.write(json.dumps(fields) + "\n")

    def pytest_runtest_logreport(self, report):
        text = ""
        if report.failed:
            text = "\n".join([report.longreprtext, *[f"---- {title}\n{content}" for title, content in report.sections]])
        elif report.skipped:
            text = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.write(test=report.nodeid, when=report.when, outcome=report.outcome, seconds=report.duration, text=text)

    def pytest_collectreport(self, report):
        if report.failed:
            self.write(test=report.nodeid or "collection", when="collect", outcome="failed", seconds=0, text=report.longreprtext)
        elif report.skipped:
            self.write(test=report.nodeid, when="collect", outcome="skipped", seconds=0, text=str(report.longrepr[2]))
