from __future__ import annotations

import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from mesh.runtime.ports import promise_ports


@pytest.fixture(autouse=True)
def own_promises(tmp_path, monkeypatch):
    """The promises of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"schedulemesh-ports-{os.getuid()}.json"


def test_callers_at_the_same_time_are_given_different_ports():
    with ThreadPoolExecutor(max_workers=4) as pool:
        given = [port for ports in pool.map(promise_ports, [9] * 8) for port in ports]
    assert len(given) == len(set(given)) == 72


def test_a_port_in_use_is_not_given():
    (next_port,) = promise_ports(1)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", next_port + 1))
        taken.listen()
        assert next_port + 1 not in promise_ports(5)


def test_a_promise_file_that_was_cut_short_is_begun_anew(own_promises):
    own_promises.write_text('{"20000": 17')
    assert len(promise_ports(3)) == 3
    assert len(promise_ports(3)) == 3


def test_promises_that_are_over_are_forgotten(own_promises):
    first = promise_ports(2)
    own_promises.write_text("{" + ",".join(f'"{port}": 1.0' for port in first) + "}")
    assert promise_ports(2) == first


def test_more_ports_than_there_are_is_an_error():
    with pytest.raises(OSError, match="free ports are needed"):
        promise_ports(70_000)
