"""Settings of all tests."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sharing import SHARED, SHARING

pytest_plugins = ("faults.table", "shared_clusters")

# Shells make background processes ignore SIGINT, and the processes that tests start and interrupt inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray starts a worker per CPU for the first driver of a cluster, and each costs most of a second of a core. Few tests use them.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")

# Ray's workers are forked from one that has imported Ray, which saves most of their starts. `WARM_WORKERS=0` starts them as Ray does.
if os.environ.get("WARM_WORKERS") != "0":
    warm = str(Path(__file__).with_name("warm_workers"))
    os.environ["PYTHONPATH"] = os.pathsep.join([warm, *filter(None, [os.environ.get("PYTHONPATH")])])

# The machine decides the time of an example: a law says what holds, not how fast.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same code gets the same examples each time, so a failure comes from the change. `make fresh` makes others, and twice as many.
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True, max_examples=50)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that share something follow each other in the order of `SHARED`, at the place of the first of them."""
    places = {file: place for place, file in enumerate(SHARED)}
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(SHARED.get(_file_of(item), _file_of(item)), []).append(item)
    items[:] = [item for group in groups.values() for item in sorted(group, key=lambda item: places.get(_file_of(item), 0))]


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collection: they are half a gigabyte, and stay until the end."""
    gc.collect()
    gc.freeze()


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
    from xdist.scheduler import LoadFileScheduling  # `-n` exists only with xdist.

    class LoadSharedScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return SHARED.get(file, file)

    return LoadSharedScheduling(config, log)
