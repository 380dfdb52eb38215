"""Wait of calls to an agent, measured by a probe."""

from __future__ import annotations

from types import SimpleNamespace

from mesh.ray.local.agent import agent
from mesh.ray.local.agent.agent import QueueProbe


class Actor:
    """Actor that counts its probes and runs them when the test says so."""

    def __init__(self):
        self.sent = 0
        self.probe = self

    def remote(self):
        self.sent += 1


def test_s15_the_wait_of_a_probe_is_reported_while_it_waits(monkeypatch):
    actor, clock_s = Actor(), [0.0]
    monkeypatch.setattr(agent, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    probe = QueueProbe(actor)
    probe.send(is_wanted=True)
    clock_s[0] = 200.0
    assert probe.queue_ms >= 200_000
    probe.arrived()
    assert probe.queue_ms >= 200_000
    probe.send(is_wanted=True)
    probe.arrived()
    assert probe.queue_ms < 200_000


def test_a_probe_that_waits_is_alone():
    actor = Actor()
    probe = QueueProbe(actor)
    for _ in range(3):
        probe.send(is_wanted=True)
    assert actor.sent == 1


def test_where_no_calls_come_nothing_is_sent():
    actor = Actor()
    probe = QueueProbe(actor)
    probe.send(is_wanted=False)
    probe.arrived()
    assert (actor.sent, probe.queue_ms) == (0, 0)
