"""Every documented refusal of the blob routes, provoked with keys on a real Redis."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from slow_requests import CLIENTS, closed_in_the_end, head, slow

from federation.link import BLOB_BYTES_MAX, LINK_PATH
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from serve_apps.gateway_fixtures import ADDRESS, EAST, NOW_MS, GatewayWorld, InProcess
from serve_apps.link_fixtures import serving
from serve_apps.requests.auth import id_of, issue_for_mesh
from serve_apps.requests.request_timeouts import BodyTimeout
from serve_apps.root.gateway import create_app

NAME = hashlib.sha256(b"data").hexdigest()
PATH = f"{LINK_PATH}/blobs/night/{NAME}"
KEYS = Keys("blobs")
DESCRIBED = GatewayWorld().app.openapi()["paths"][f"{LINK_PATH}/blobs/{{run}}/{{sha256}}"]


@dataclass
class Root:
    """Gateway with keys and blobs on Redis, and a mesh's key for it."""

    client: "redis.Redis"

    def __post_init__(self) -> None:
        ring = RedisKeyRing(self.client, KEYS)
        self.key = issue_for_mesh(ring, EAST, NOW_MS)
        self.ports = replace(GatewayWorld().dependencies(), keys=ring, blobs=RedisBlobs(self.client, KEYS))

    def ask(self, method: str, *, path: str = PATH, content: bytes = b"data", key: str | None = None, ports: object = None) -> int:
        """Return the status of the answer."""
        app = create_app(ports or self.ports)
        headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
        with httpx.Client(transport=InProcess(app), base_url=ADDRESS, headers=headers) as http:
            return http.request(method, path, content=content if method == "PUT" else None).status_code


@pytest.fixture(scope="module")
def server() -> "Iterator[redis.Redis]":
    with running_redis() as client:
        yield client


@pytest.fixture
def root(server) -> Root:
    return Root(server)


def too_slow(root: Root, method: str) -> int:
    beginning = head(PATH, root.key).replace(b"POST", method.encode(), 1)
    with serving(BodyTimeout(create_app(root.ports), body_s=0.2)) as address, slow(address, beginning) as clients:
        answers = closed_in_the_end(clients)
    (status,) = {answer.split(b" ", 2)[1] for answer in answers}
    assert len(answers) == CLIENTS
    return int(status)


def too_often(root: Root, method: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_apps.link.routes.CALLS_BURST", 0)
        return root.ask(method)


def broken_record(root: Root, method: str) -> int:
    root.client.hset(KEYS.api_keys, id_of(root.key), b"{}")
    return root.ask(method)


def no_store(root: Root, method: str) -> int:
    gone = redis.Redis(unix_socket_path="/nonexistent/redis.sock", retry=Retry(NoBackoff(), 0))
    return root.ask(method, ports=replace(root.ports, keys=RedisKeyRing(gone, KEYS)))


OF_BOTH: dict[int, Callable[[Root, str], int]] = {
    401: lambda root, method: root.ask(method, key="smm_00000000_" + "a" * 43),
    422: lambda root, method: root.ask(method, path=PATH[:-1]),
    429: too_often,
    502: broken_record,
    503: no_store,
}
PROVOKED = {
    "get": {**OF_BOTH, 404: lambda root, method: root.ask(method)},
    "put": {**OF_BOTH, 408: too_slow, 413: lambda root, method: root.ask(method, content=b"x" * (BLOB_BYTES_MAX + 1))},
}


@pytest.mark.parametrize("method", PROVOKED)
def test_description_lists_exactly_the_refusals(method):
    assert {int(status) for status in DESCRIBED[method]["responses"]} == {200, *PROVOKED[method]}


@pytest.mark.parametrize(("method", "status"), [(method, status) for method, statuses in PROVOKED.items() for status in statuses])
def test_a_refusal_that_is_described_can_come(root, method, status):
    assert PROVOKED[method][status](root, method.upper()) == status


def test_bytes_of_another_name_are_refused_as_described(root):
    assert root.ask("PUT", content=b"others") == 422
    assert root.ask("PUT") == 200
