"""A learner and its actors: which of ten slot machines pays best?

The learner (the job's leader) listens on a port and keeps count. Each actor (a worker) asks it which machine to play, plays,
and reports whether it won. The mesh gives each actor the learner's address. An actor may come late, die or be restarted at any
time: the learner continues with the actors that are up.

Nothing here needs Ray: the classes are plain ones, and a test runs them in threads.
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import socketserver
import threading
from typing import Any

WIN_RATES = (0.12, 0.30, 0.25, 0.41, 0.18, 0.36, 0.72, 0.22, 0.33, 0.47)  #: One per machine; hidden from the learner.
CONNECT_S_MAX = 30.0


class Counts:
    """Plays and wins of each machine, and the choice of the next one (UCB1). Any thread may use it."""

    def __init__(self, machines: int, plays_max: int) -> None:
        self._lock = threading.Lock()
        self._plays_max = plays_max
        self._handed_out = 0
        self.plays = [0] * machines
        self.wins = [0] * machines
        self.by_rank: dict[str, int] = {}
        self.is_complete = threading.Event()

    def next_machine(self) -> int | None:
        """Return the machine with the highest upper confidence bound; None after enough plays."""
        with self._lock:
            if self.is_complete.is_set():
                return None
            self._handed_out += 1
            return max(range(len(self.plays)), key=self._bound)

    def add(self, rank: str, machine: int, won: bool) -> None:
        """Count one play of a machine."""
        with self._lock:
            self.plays[machine] += 1
            self.wins[machine] += won
            self.by_rank[rank] = self.by_rank.get(rank, 0) + 1
            if sum(self.plays) >= self._plays_max:
                self.is_complete.set()

    def report(self) -> dict[str, Any]:
        """Return the best machine, its win rate, and the number of plays of each rank."""
        with self._lock:
            best = max(range(len(self.plays)), key=self.plays.__getitem__)
            rate = self.wins[best] / max(self.plays[best], 1)
            return {"best": best, "win_rate": round(rate, 3), "plays": sum(self.plays), "plays_by_rank": dict(sorted(self.by_rank.items()))}

    def _bound(self, machine: int) -> float:
        plays = self.plays[machine]
        if plays == 0:
            return math.inf if self._handed_out <= len(self.plays) else 2.0
        return self.wins[machine] / plays + math.sqrt(2 * math.log(self._handed_out) / plays)


class Learner:
    """The leader. The mesh reads `address` once it is up, starts the actors with it, and calls `run`."""

    def __init__(self, plays: int = 3_000) -> None:
        self.counts = counts = Counts(len(WIN_RATES), plays)

        class Conversation(socketserver.StreamRequestHandler):
            """Conversation with one actor, in lines of JSON."""

            def handle(self) -> None:
                rank = json.loads(self.rfile.readline() or b'{"rank": ""}')["rank"]
                while (machine := counts.next_machine()) is not None:
                    self.wfile.write(json.dumps({"play": machine}).encode() + b"\n")
                    answer = self.rfile.readline()
                    if not answer:
                        return  # The actor has died; its last play does not count.
                    counts.add(rank, machine, json.loads(answer)["won"])
                self.wfile.write(b'{"play": null}\n')

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("", 0), Conversation)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"{own_ip()}:{self._server.server_address[1]}"

    def run(self) -> dict[str, Any]:
        """Wait for enough plays, and return the report; it becomes the job's result."""
        self.counts.is_complete.wait()
        self._server.shutdown()
        self._server.server_close()
        return self.counts.report()


class Actor:
    """A worker."""

    def __init__(self, seed: int = 7) -> None:
        self.rank = os.environ["SCHEDULEMESH_RANK"]
        self.leader = os.environ["SCHEDULEMESH_LEADER_ADDRESS"]
        self.random = random.Random(f"{seed}:{self.rank}")  # noqa: S311  games of chance, not secrets

    def run(self) -> int:
        """Play until the learner has enough, and return the number of plays.

        Raises:
            ConnectionError: The learner is gone. The mesh restarts the actor, with the learner's new address if there is one.
        """
        host, _, port = self.leader.rpartition(":")
        plays = 0
        with (
            socket.create_connection((host, int(port)), timeout=CONNECT_S_MAX) as connection,
            connection.makefile("rwb", buffering=0) as stream,
        ):
            connection.settimeout(None)
            stream.write(json.dumps({"rank": self.rank}).encode() + b"\n")
            while order := stream.readline():
                machine = json.loads(order)["play"]
                if machine is None:
                    return plays
                stream.write(json.dumps({"won": self.random.random() < WIN_RATES[machine]}).encode() + b"\n")
                plays += 1
        raise ConnectionError(f"the learner at {self.leader} has hung up")


def own_ip() -> str:
    """Return this machine's address in its network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # An address reserved for documentation.
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
