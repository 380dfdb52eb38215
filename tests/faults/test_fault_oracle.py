"""The fault oracle itself: it detects each violation that the rows rely on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.oracle import CPU, Charge, Oracle, Use, units_held, work_of
from faults.server import Server
from patience import eventually

PATIENCE_S = 60.0


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "work")
    os.mkfifo(path)
    return path


@pytest.fixture
def oracle(fifo: str, server: Server) -> Iterator[Oracle]:
    """Oracle with one slot for `lab` and its subtree."""
    oracle = Oracle(fifo, server.url, {"lab": 1, "lab/a": 1, "lab/b": 1})
    yield oracle
    oracle.stop()


def begin(fifo: str, tenant: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", 'read _ <>"$0"', fifo, tenant, "west", "stage"])


def end(*work: subprocess.Popen[bytes]) -> None:
    for process in work:
        process.kill()
        process.wait()


def test_two_tenants_on_one_slot_are_detected(fifo: str, oracle: Oracle) -> None:
    work = [begin(fifo, "lab/a")]
    eventually(lambda: oracle.uses and oracle.uses[-1].by_tenant.get("lab") == 1, PATIENCE_S)
    oracle.verdict()
    work.append(begin(fifo, "lab/b"))
    eventually(lambda: oracle.uses[-1].by_tenant["lab"] == 2, PATIENCE_S)
    end(*work)
    eventually(lambda: not work_of(fifo), PATIENCE_S)
    with pytest.raises(AssertionError, match=r"real use above the quota.*'lab': \(2, 1\)"):
        oracle.verdict()  # It is over by now, and still counts.


def test_spared_process_is_not_counted(fifo: str, oracle: Oracle) -> None:
    spared = begin(fifo, "lab/a")
    oracle.spare(spared.pid)
    other = begin(fifo, "lab/b")
    eventually(lambda: oracle.uses and oracle.uses[-1].by_tenant.get("lab") == 1, PATIENCE_S)
    oracle.verdict()
    end(spared, other)


@pytest.mark.parametrize(
    ("held", "is_fair"),
    [
        pytest.param([2, 2, 1], True, id="above after a cut, and falling"),
        pytest.param([1, 2], False, id="rising above"),
        pytest.param([2, 3], False, id="above and rising"),
    ],
)
def test_use_above_the_limit_is_allowed_only_while_falling(oracle: Oracle, held: list[int], is_fair: bool) -> None:
    oracle.stop()  # The oracle's own samples would be empty, and would count in between.
    oracle.limit({"lab": 9})
    before_s = oracle.now_s()
    oracle.charges = [Charge(before_s, before_s, {"lab": held[0] * CPU})]
    oracle.limit({"lab": 1})
    after_s = oracle.now_s()
    oracle.charges += [Charge(after_s, after_s, {"lab": slots * CPU}) for slots in held[1:]]
    if is_fair:
        oracle.verdict()
    else:
        with pytest.raises(AssertionError, match="was charged"):
            oracle.verdict()


def test_sample_across_a_raise_is_held_to_the_higher_limit(oracle: Oracle) -> None:
    oracle.stop()
    since_s = oracle.now_s()
    oracle.limit({"lab": 2})
    oracle.uses = [Use(since_s, oracle.now_s(), {"lab": 2}, {"west": 2})]
    oracle.verdict()
    oracle.uses = [Use(since_s, since_s, {"lab": 2}, {"west": 2})]
    with pytest.raises(AssertionError, match="real use above the quota"):
        oracle.verdict()


def test_a_token_on_two_leases_is_seen(oracle: Oracle) -> None:
    oracle.tokens[7] = {"lease of lab on west"}
    oracle.verdict()
    oracle.tokens[7].add("lease of lab on east")
    with pytest.raises(AssertionError, match="given out twice"):
        oracle.verdict()


def test_a_row_of_the_ledger_is_read_as_the_scripts_write_it() -> None:
    assert units_held(b"17|18|-3|0|cpu|20000|10000|memory|5|5") == 20_000
