"""Free ports for clusters."""

from __future__ import annotations

import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from mesh.ray.cluster.ports import promise_ports


@pytest.fixture(autouse=True)
def own_promises(tmp_path, monkeypatch):
    """Isolate the port reservations of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"schedulemesh-ports-{os.getuid()}.json"


def test_callers_at_the_same_time_are_given_different_ports():
    with ThreadPoolExecutor(max_workers=4) as pool:
        given = [port for ports in pool.map(promise_ports, [9] * 8) for port in ports]
    assert len(given) == len(set(given)) == 72


def test_a_port_in_use_is_not_given(own_promises):
    (port,) = promise_ports(1)
    own_promises.unlink()
    with socket.socket() as user:
        user.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        user.bind(("127.0.0.1", port))
        user.listen()
        assert port not in promise_ports(3)


def test_a_promise_file_that_was_cut_short_is_begun_anew(own_promises):
    own_promises.write_text('{"20000": 17')
    assert len(promise_ports(3)) == 3
    assert len(promise_ports(3)) == 3


def test_promises_that_are_over_are_forgotten(own_promises):
    own_promises.write_text('{"19999": 1.0}')
    promise_ports(1)
    assert "19999" not in own_promises.read_text()


def test_more_ports_than_there_are_is_an_error():
    with pytest.raises(OSError, match="free ports are needed"):
        promise_ports(70_000)
