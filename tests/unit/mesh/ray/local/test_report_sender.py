"""Reports of an agent to its supervisor: acked, coalesced and bounded."""

from __future__ import annotations

from mesh.core.ids import AgentId, NodeName, TaskId
from mesh.ray.local.agent.report_sender import OUT_MAX, Receipt, ReportSender
from mesh.ray.local.agent_messages import AgentStatus

A, B = TaskId("a"), TaskId("b")
REPORT = AgentStatus(agent=AgentId("agent"), task=A, attempt=7, at_ms=0, pid=1, node=NodeName("n"))


class FakeSupervisor:
    """Supervisor that answers as the test says."""

    def __init__(self):
        self.reported = []
        self.receipt = Receipt.TAKEN
        self.answered = {}  #: By the message's position, from 1.

    def send(self, task, attempt, kind, payload):
        self.reported.append((task, attempt, kind, payload))
        place = len(self.reported)
        return lambda: self.answered.get(place, self.receipt)


def sender(client, period_s=3600.0):
    return ReportSender(client, lambda: REPORT, period_s=period_s)


def test_reports_are_sent_in_order():
    client = FakeSupervisor()
    subject = sender(client)
    subject.send(A, 1, "blocked", None)
    subject.send(A, 1, "unblocked", None)
    subject.turn_once()
    subject.turn_once()
    assert client.reported == [(A, 1, "blocked", None), (A, 1, "unblocked", None)]


def test_a_lost_report_is_sent_until_it_is_acked():
    client = FakeSupervisor()
    subject = sender(client)
    client.receipt = Receipt.LOST
    subject.send(A, 1, "blocked", None)
    for _ in range(3):
        rest_s = subject.turn_once()
        assert rest_s < 3600
    client.receipt = Receipt.TAKEN
    subject.turn_once()
    subject.turn_once()
    assert client.reported == [(A, 1, "blocked", None)] * 3
    assert subject.turn_once() > 1


def test_the_last_waiting_checkpoint_of_an_attempt_is_sent():
    client = FakeSupervisor()
    subject = sender(client)
    for number in range(5):
        subject.send(A, 1, "checkpoint", number)
    subject.send(B, 1, "checkpoint", "other")
    subject.turn_once()
    assert client.reported == [(A, 1, "checkpoint", 4), (B, 1, "checkpoint", "other")]


def test_a_lost_checkpoint_does_not_come_after_a_newer_one():
    client = FakeSupervisor()
    subject = sender(client)
    client.receipt = Receipt.LOST
    subject.send(A, 1, "checkpoint", 1)
    subject.turn_once()
    subject.send(A, 1, "checkpoint", 2)
    client.receipt = Receipt.TAKEN
    client.answered = {1: Receipt.LOST}
    subject.turn_once()
    subject.turn_once()
    assert [payload for *_, payload in client.reported] == [1, 2]


def test_s15_a_report_is_sent_every_period_one_at_a_time():
    client = FakeSupervisor()
    subject = sender(client, period_s=0.0)
    subject.turn_once()
    subject.turn_once()
    assert client.reported == [(A, 7, "report", REPORT)] * 2
    client.receipt = Receipt.OUT
    for _ in range(3):
        subject.turn_once()
    assert len(client.reported) == 2
    client.receipt = Receipt.LOST  # A report is not sent again; the next one is.
    subject.turn_once()
    assert len(client.reported) == 3


def test_s15_the_period_can_be_set():
    client = FakeSupervisor()
    subject = sender(client)
    assert subject.turn_once() > 5
    subject.set_period(0.0)
    assert subject.turn_once() == 0
    assert len(client.reported) == 1


def test_a_returning_supervisor_is_not_flooded():
    client = FakeSupervisor()
    client.receipt = Receipt.OUT
    subject = sender(client)
    for number in range(3 * OUT_MAX):
        subject.send(A, 1, "blocked", number)
    subject.turn_once()
    subject.turn_once()
    assert len(client.reported) == OUT_MAX
    client.receipt = Receipt.TAKEN
    for _ in range(3):
        subject.turn_once()
    assert [payload for *_, payload in client.reported] == list(range(3 * OUT_MAX))


def test_an_attempt_whose_stop_was_acked_sends_nothing_more():
    client = FakeSupervisor()
    subject = sender(client)
    client.receipt = Receipt.LOST
    subject.send(A, 1, "unblocked", None)
    subject.turn_once()
    subject.send(A, 1, "checkpoint", "waiting")
    subject.send(A, 2, "blocked", None)
    subject.forget(A, 1)
    subject.turn_once()
    assert client.reported == [(A, 1, "unblocked", None), (A, 2, "blocked", None)]
