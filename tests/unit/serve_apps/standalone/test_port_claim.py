from __future__ import annotations

import socket
from contextlib import contextmanager
from itertools import pairwise

import pytest

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import promise_ports
from serve_apps.standalone import port_claim
from serve_apps.standalone.port_claim import PortClaim

HERE = "127.0.0.1"


@contextmanager
def taken(port=0, *, listening=True):
    """Hold a port (0: any) with a socket and yield the port."""
    with socket.socket() as holder:
        holder.bind((HERE, port))
        if listening:
            holder.listen()
        yield holder.getsockname()[1]


@pytest.fixture
def port():
    """A free port followed by another free one; neither is ephemeral or a cluster's."""
    return next(first for first, second in pairwise(promise_ports(40)) if second == first + 1)


def test_a_free_port_is_taken_as_it_was_wanted(port):
    with PortClaim.take(HERE, port) as claim:
        assert claim.port == port


@pytest.mark.parametrize("host", [HERE, "0.0.0.0"])  # noqa: S104  what a user may write; nothing listens on it
def test_a_taken_port_is_passed_over_for_the_next(host, port):
    with taken(port), PortClaim.take(host, port) as claim:
        assert claim.port == port + 1


def test_port_held_without_listening_is_taken(port):
    with taken(port, listening=False), PortClaim.take(HERE, port) as claim:
        assert claim.port == port + 1


def test_exhausted_ports_are_listed_with_a_remedy(monkeypatch):
    monkeypatch.setattr(port_claim, "PORTS_TRIED", 1)
    with taken() as port, pytest.raises(RuntimeAdapterError, match=rf"{port} .*set root\.port"):
        PortClaim.take(HERE, port)


def test_there_is_no_port_behind_the_last_one():
    try:
        with taken(65_535), pytest.raises(RuntimeAdapterError, match=r"set root\.port"):
            PortClaim.take(HERE, 65_535)
    except OSError:
        pytest.skip("somebody else holds the last port")


def test_concurrent_choices_pick_different_ports(port):
    with PortClaim.take(HERE, port) as first, PortClaim.take(HERE, port) as second:
        assert (first.port, second.port) == (port, port + 1)


def test_a_port_that_was_released_can_be_chosen_again(port):
    PortClaim.take(HERE, port).release()
    with PortClaim.take(HERE, port) as again:
        assert again.port == port
