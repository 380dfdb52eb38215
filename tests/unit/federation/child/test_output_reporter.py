"""Output of a mesh's nodes on its way to the log, with a store that refuses it."""

from __future__ import annotations

import pytest
from child_bed import Federation, Flaky

from federation.child.child_mesh import ChildMesh
from federation.child.output_reporter import PAUSE_MS, REST_MS, WAITING_MAX
from federation.errors import BatchTooLarge
from federation.store.memory.run_log import MemoryRunLog
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeOutput, NodeStarted, StageEnded


class Printing(Federation):
    """A mesh that runs the stage `s`, whose reports the test makes."""

    def __init__(self):
        super().__init__()
        self.log = Flaky(MemoryRunLog(self.store))
        self.child = ChildMesh(
            record=self.record,
            ledger=self.flaky,
            queue=self.flaky,
            blobs=self.flaky,
            host=self.host,
            clock=self.clock,
            heartbeat_ms=700,
            run_log=self.log,
        )
        self.number = 0
        self.submit("s")
        self.heartbeat(2)

    def print(self, *lines, messages=()):
        self.number += 1
        self.clock.advance(PAUSE_MS)
        output = NodeOutput(stage="s", node="a", attempt=1, number=1, at_ms=0, stream="stdout", lines=lines)
        self.child.take_report(HostReport(stage="s", number=self.number, messages=messages, output=(output,)))

    def logged(self):
        return [line for entry in self.log.read("r") for line in entry.output.lines]


@pytest.fixture
def printing():
    return Printing()


def test_output_is_in_the_log_before_the_end_that_comes_with_it(printing):
    seen = []
    printing.print("early")
    printing.flaky.before["report"] = lambda: seen.extend(printing.logged())
    printing.print("last", messages=(StageEnded(stage="s"),))
    assert seen == ["early", "last"]


def test_results_do_not_wait_for_a_log_that_refuses(printing):
    printing.log.down = {"append"}
    printing.print("kept for later", messages=(NodeStarted(stage="s", node="a", attempt=1, started_ms=0),))
    assert "node_started" in [kind for _, kind in printing.kinds()]
    printing.log.down = set()
    printing.clock.advance(REST_MS)
    printing.print("later")
    assert printing.logged() == ["kept for later", "later"]


def test_a_refusal_for_good_drops_that_output_alone(printing):
    printing.log.broken["append"] = BatchTooLarge("too much")
    printing.print("refused")
    del printing.log.broken["append"]
    printing.print("taken")
    assert printing.logged() == ["taken"]


def test_output_that_waits_is_bounded_and_the_newest_stays(printing):
    printing.log.down = {"append"}
    for number in range(40):
        printing.print(str(number), *["x" * 4_000] * (WAITING_MAX // 20 // 4_000))
    printing.log.down = set()
    printing.clock.advance(REST_MS)
    printing.print("the newest")
    found = printing.logged()
    assert "0" not in found
    assert {"39", "the newest"} <= set(found)


def test_output_of_a_stage_whose_end_is_reported_is_dropped(printing):
    printing.log.down = {"append"}
    printing.print("lost", messages=(StageEnded(stage="s"),))
    printing.log.down = set()
    printing.clock.advance(REST_MS)
    printing.heartbeat()
    assert printing.logged() == []


def test_output_alone_waits_and_is_sent_in_one_call(printing):
    calls = []
    printing.log.heard = calls.append
    printing.print("first")
    for text in ("soon after", "and more"):
        printing.clock.advance(-PAUSE_MS)
        printing.print(text)
    assert calls == ["append"]
    printing.heartbeat()
    assert calls == ["append", "append"]
    assert printing.logged() == ["first", "soon after", "and more"]


def test_output_whose_confirmation_was_lost_is_kept_once(printing):
    printing.log.mute = {"append"}
    printing.print("first")
    printing.print("second")
    printing.log.mute = set()
    for _ in range(REST_MS // 700 + 1):
        printing.heartbeat()
    assert printing.logged() == ["first", "second"]
