"""Settings of all tests."""

import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sharing import SHARED, SHARING

pytest_plugins = ("faults.table",)

# Shells have what they start in the background ignore SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes to make or to look at is the machine's business: a law says what holds, and not how soon.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What a change is refused for is what it did, so the same code gets the same examples each time. `make fresh` looks for others.
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End shared resources after a file unless the next file uses them."""
    yield
    SHARING.close_unused(item, nextitem)


def pytest_sessionfinish() -> None:
    """End the shared resources of an interrupted run."""
    SHARING.close_unused(None, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule as `--dist loadfile` does, with files that share something in one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # Where `-n` is known, it is there.

    class LoadSharedScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return SHARED.get(file, file)

    return LoadSharedScheduling(config, log)
