"""Root replica that kills itself after running a verb and before answering it.

`python dying_root.py REDIS_URL VERB` prints its address, serves, and dies with the first call of VERB; `none` means never.
"""

import os
import signal
import socket
import sys
from typing import Any

import uvicorn

from federation.leases import LeaseTerms
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.client import connect
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from serve_apps.link_fixtures import link_app

TERMS = LeaseTerms(ttl_ms=60_000, grace_ms=10_000)


class Dying:
    """Port that dies after its one fatal verb."""

    def __init__(self, port: Any, verb: str) -> None:
        self._port = port
        self._verb = verb

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name != self._verb:
            return method

        def carry_out_and_die(*arguments: Any, **named: Any) -> None:
            method(*arguments, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        return carry_out_and_die


def main(url: str, verb: str) -> None:
    client, keys = connect(url, timeout_ms=60_000), Keys("faults")
    ledger, queue = RedisLedger(client, keys, terms=TERMS, founding=True), RedisStageQueue(client, keys)
    app = link_app(ledger=Dying(ledger, verb), queue=Dying(queue, verb), blobs=RedisBlobs(client, keys), keys=RedisKeyRing(client, keys))
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_keep_alive=600)).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
