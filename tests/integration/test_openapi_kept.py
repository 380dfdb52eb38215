"""Conformance of a real server on a real Redis to its OpenAPI description, for right and wrong calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import httpx
import pytest
import redis.asyncio
from hypothesis import HealthCheck, Phase, given, seed, settings

from dag.spec.columns import MEDIA_TYPE
from dag.store.event_feed import RedisEventFeed
from dag.store.redis_cache import RedisCacheStore
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_schedules import RedisScheduleStore
from dag.store.redis_webhooks import RedisWebhooks
from federation.leases import LeaseTerms
from federation.link import LINK_PATH
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.change_log import RedisChangeLog
from federation.store.redis.durability import RedisDurability
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.policies import RedisTenantPolicies
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.registry import RedisRegistry
from federation.store.redis.run_log import RedisRunLog
from federation.store.redis.usage import RedisUsage
from federation.tenants import TenantTree
from mesh.core.clock import SystemClock
from serve_apps.gateway_fixtures import EAST, RESEARCH, TENANTS, GatewayWorld, spec_of
from serve_apps.link import routes as link_routes
from serve_apps.link_fixtures import serving
from serve_apps.requests import dependencies
from serve_apps.requests.auth import issue, issue_for_mesh
from serve_apps.root.gateway import Dependencies, create_app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.skipif(find_spec("schemathesis") is None, reason="needs Python 3.11"),
]

EXAMPLES, SEED = 8, 11
ANSWER_S = 60.0
#: A path with a strange part may be that of no route, or of another one.
ELSEWHERE = ("unknown_route", "method_not_allowed")
RUN = "night"
MODES = {"right": "POSITIVE", "wrong": "NEGATIVE"}
DESCRIBED = GatewayWorld().app.openapi()
#: By key: of a tenant, of an operator, of a mesh on the link; and once without any.
OPERATIONS = [
    (method, path, who, mode)
    for path, methods in DESCRIBED["paths"].items()
    for method in methods
    for who in (["mesh"] if path.startswith(LINK_PATH) else ["tenant", "operator"]) + ["nobody"]
    for mode in MODES
    if (who, mode) != ("nobody", "wrong") and not (mode == "wrong" and path == "/healthz")  # Nothing in these calls can be wrong.
]


@pytest.fixture(scope="module")
def root() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve a gateway; yield its address and a key of each kind, with unlimited budgets."""
    with pytest.MonkeyPatch.context() as patch, running_redis() as client:
        for name in ("CALLS_BURST", "SNAPSHOTS_BURST", "WRONG_BURST"):
            patch.setattr(dependencies, name, 10**9)
        for name in ("CALLS_BURST", "NOTIFICATIONS_BURST", "HEARTBEATS_PER_INTERVAL"):
            patch.setattr(link_routes, name, 10**9)
        keys = Keys("described")
        ledger = RedisLedger(client, keys, terms=LeaseTerms(ttl_ms=10_000, grace_ms=3_000), founding=True)
        ledger.configure(TenantTree(TENANTS))
        ring = RedisKeyRing(client, keys)
        waiting = redis.asyncio.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"])
        app = create_app(
            Dependencies(
                runs=RedisRunStore(client, keys),
                ledger=ledger,
                registry=RedisRegistry(client, keys),
                tenant_policies=RedisTenantPolicies(client, keys),
                queue=RedisStageQueue(client, keys),
                blobs=RedisBlobs(client, keys),
                run_log=RedisRunLog(client, keys),
                cache=RedisCacheStore(client, keys),
                schedules=RedisScheduleStore(client, keys),
                webhooks=RedisWebhooks(client, keys),
                usage=RedisUsage(client, keys),
                changes=RedisChangeLog(client, keys),
                feed=RedisEventFeed(waiting, keys),
                keys=ring,
                body_limit_bytes=100_000,
                clock=SystemClock(),
                durable=RedisDurability(client, keys),
                close=waiting.aclose,
            )
        )
        asking = {"tenant": issue(ring, RESEARCH, 1), "operator": issue(ring, "*", 1), "mesh": issue_for_mesh(ring, EAST, 1), "nobody": ""}
        with serving(app, lifespan="on") as address:
            http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {asking['tenant']}"})
            http.post("/v1/runs", json=spec_of("a", id=RUN)).raise_for_status()
            http.close()
            yield address, asking


def put_right(part: Any) -> Any:
    """Name existing things in the call, without waits."""
    if isinstance(part, list):
        return [put_right(each) for each in part]
    if not isinstance(part, dict):
        return part
    known = {"mesh": str(EAST), "wait_ms": 0}
    return {
        name: known[name] if name in known and isinstance(value, type(known[name])) else put_right(value) for name, value in part.items()
    }


@pytest.mark.parametrize(("method", "path", "who", "mode"), OPERATIONS)
def test_every_answer_is_one_that_is_described(root, method, path, who, mode):
    import schemathesis  # Takes a second, which `make test` does not need.

    schemathesis.serializer.alias(MEDIA_TYPE, "application/octet-stream")
    address, keys = root
    schema = schemathesis.openapi.from_dict(DESCRIBED)
    operation = schema[path][method]
    documented = {int(status) for status in DESCRIBED["paths"][path][method]["responses"]}
    headers = {"Authorization": f"Bearer {keys[who]}"} if keys[who] else {}

    def ask(case: Any) -> None:
        case.body = put_right(case.body)
        if "run_id" in (case.path_parameters or {}) and mode == "right" and not path.endswith("/events"):  # Its stream would not end.
            case.path_parameters["run_id"] = RUN
        if isinstance(case.query, dict):
            case.query.pop("wait_s", None)
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "authorization"}
        answer = case.call(base_url=address, headers=headers, timeout=ANSWER_S)
        is_elsewhere = answer.status_code in (404, 405) and answer.json()["code"] in ELSEWHERE
        assert answer.status_code in documented or is_elsewhere, f"{answer.status_code}: {answer.text[:300]}"
        assert answer.status_code < 500, f"{answer.status_code}: {answer.text[:300]}"

    fuzz(operation.as_strategy(generation_mode=getattr(schemathesis.GenerationMode, MODES[mode])), ask)


def fuzz(cases: Any, ask: Callable[[Any], None]) -> None:
    """Make the same calls each time."""

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def run(case: Any) -> None:
        ask(case)

    run()
