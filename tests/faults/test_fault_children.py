"""Faults of child meshes and of what is between them and the ledger: rows 1 to 4 and 8 to 11 of the fault plan."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from patience import eventually

from faults.bed import PATIENCE_S, Bed, kill
from faults.conftest import Row

pytestmark = pytest.mark.faults


@pytest.mark.slow
def test_fault_01_the_agent_is_killed_and_its_workers_live_on(bed: Bed, row: Row) -> None:
    west, _ = bed.mesh("west"), bed.mesh("east")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    kill(west.agent)
    bed.submit("east", 2)
    bed.is_running("east", 2)
    assert west.work() == []
    row.held("watchdog ended the work, then east had the quota")
