"""Ledger over TLS: a server and a cluster that speak TLS, and a server behind a TLS proxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from faults.server import Server, free_port
from redis_forms import Cluster

from dag.errors import UnknownRun
from dag.store.event_feed import RedisEventFeed
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.client import connect, connect_async
from federation.store.redis.fixtures import servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import TenantTree
from mesh.core.ids import RunId

#: Limit for a slow server.
PATIENCE_MS = 60_000
#: Long enough that no slow node is given up by the others.
STEADY = {"cluster_node_timeout": "15000"}
TERMS = LeaseTerms(ttl_ms=30_000, grace_ms=10_000)
#: This machine's servers that were built with TLS; the wheel's is not.
SPEAKING = {name: binary for name, binary in servers().items() if b"tls-auth-clients" in Path(binary).read_bytes()}
FORMS = ["behind another", *(f"{name}: {form}" for name in SPEAKING for form in ("one server", "cluster"))]


class Front:
    """TLS proxy before a plain server."""

    def __init__(self, port_behind: int, context: ssl.SSLContext) -> None:
        self._behind = port_behind
        self._context = context
        self._client = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._client.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._welcome)]
        self._threads[0].start()

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):  # The socket was closed.
            while True:
                came, _ = self._client.accept()
                with contextlib.suppress(OSError):  # A client that rejects this certificate disconnects.
                    speaking = self._context.wrap_socket(came, server_side=True)
                    behind = socket.create_connection(("127.0.0.1", self._behind))
                    self._open += [speaking, behind]
                    for there, back in ((speaking, behind), (behind, speaking)):
                        self._threads.append(threading.Thread(target=_carry, args=(there, back)))
                        self._threads[-1].start()

    def close(self) -> None:
        for end in (self._client, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)


def _carry(there: socket.socket, back: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while said := there.recv(65_536):
            back.sendall(said)
    with contextlib.suppress(OSError):
        back.shutdown(socket.SHUT_RDWR)


class Bed:
    """An authority, and the files of a server and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)
        self._closing = ExitStack()

    def certificate(self, host: str) -> tuple[str, str]:
        """Make the files of a key and a certificate for the host."""
        issued = self.authority.issue_cert(host)
        key, chain = self.folder / f"{host}.key", self.folder / f"{host}.pem"
        issued.private_key_pem.write_to_path(str(key))
        issued.cert_chain_pems[0].write_to_path(str(chain))
        return str(key), str(chain)

    def settings(self, host: str = "127.0.0.1") -> dict[str, str]:
        """Return the settings of a server that speaks TLS on a port of its own."""
        key, chain = self.certificate(host)
        return {
            "tls_port": str(free_port()),
            "tls_cert_file": chain,
            "tls_key_file": key,
            "tls_ca_cert_file": self.ca_file,
            "tls_auth_clients": "no",
        }

    def open(self, form: str, host: str = "127.0.0.1") -> str:
        """Start servers in this form with a certificate for the host; return their URL without options."""
        name, _, how = form.partition(": ")
        if form == "behind another":
            return self._behind_another(host)
        if how == "one server":
            settings = self.settings(host)
            self._closing.callback(Server(self.folder / "redis", binary=SPEAKING[name], **settings).close)
            return f"rediss://127.0.0.1:{settings['tls_port']}"
        cluster = Cluster(
            self.folder / "cluster", binary=SPEAKING[name], each=lambda: {**STEADY, "tls_cluster": "yes", **self.settings(host)}
        )
        self._closing.callback(cluster.close)
        return f"rediss+cluster://127.0.0.1:{cluster.settings[0]['tls_port']},127.0.0.1:{cluster.settings[1]['tls_port']}"

    def _behind_another(self, host: str) -> str:
        server = Server(self.folder / "redis", binary=servers()["wheel"])
        self._closing.callback(server.close)
        key, chain = self.certificate(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        front = Front(server.port, context)
        self._closing.callback(front.close)
        return f"rediss://127.0.0.1:{front.port}"

    def close(self) -> None:
        self._closing.close()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path)
    yield bed
    bed.close()


def configured_on(url: str, *, timeout_ms: int = 3_000) -> int:
    """Configure a tree over the URL and return its version."""
    with connect(url, timeout_ms=timeout_ms) as client:
        return RedisLedger(client, Keys(), terms=TERMS, uid="ours").configure(TenantTree(())).version


async def follow(url: str) -> None:
    async with connect_async(url, timeout_ms=PATIENCE_MS) as client:
        await anext(RedisEventFeed(client, Keys(), patience_s=PATIENCE_MS / 1000).follow(RunId("nobody")))


@pytest.mark.parametrize("form", FORMS)
def test_a_server_is_believed_by_the_file_of_its_authority(bed: Bed, form: str):
    url = f"{bed.open(form)}?ssl_ca_certs={bed.ca_file}"
    assert configured_on(url, timeout_ms=PATIENCE_MS) == 1
    with pytest.raises(UnknownRun):  # It was called, and answered.
        asyncio.run(follow(url))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("host", "change"),
    [
        pytest.param("127.0.0.1", lambda url: url, id="an authority that this machine does not know"),
        pytest.param("elsewhere.example", lambda url: f"{url}?ssl_ca_certs=CA", id="a certificate for another host"),
        pytest.param("127.0.0.1", lambda url: url.replace("rediss", "redis"), id="a client that speaks plainly"),
    ],
)
def test_what_is_not_believed_is_a_store_that_does_not_answer(bed: Bed, form: str, host: str, change: Callable[[str], str]):
    url = change(bed.open(form, host)).replace("=CA", f"={bed.ca_file}")
    with pytest.raises(StoreUnavailable):
        configured_on(url)
