"""A learner and its actors: which of ten slot machines pays best?

The learner (the job's leader) opens a door and keeps count; each actor (a worker) asks it which machine to play, plays,
and tells whether it won. An actor finds the learner by the address that the mesh hands to it, and may come late, die or
be started again at any time: the learner goes on with whoever is there.

Nothing here knows of Ray: the classes are plain ones, and a test runs them in threads.
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

WIN_RATES = (0.12, 0.30, 0.25, 0.41, 0.18, 0.36, 0.72, 0.22, 0.33, 0.47)  #: Of the machines; the learner does not see them.
CONNECT_S_MAX = 30.0


class Counts:
    """What has been played and won, by machine; and which to play next (UCB1). Any thread may use it."""

    def __init__(self, machines: int, plays_max: int) -> None:
        self._lock = threading.Lock()
        self._plays_max = plays_max
        self._handed_out = 0
        self.plays = [0] * machines
        self.wins = [0] * machines
        self.by_rank: dict[str, int] = {}
        self.is_complete = threading.Event()

    def next_machine(self) -> int | None:
        """The machine that might still be the best one; None when enough was played."""
        with self._lock:
            if self.is_complete.is_set():
                return None
            self._handed_out += 1
            return max(range(len(self.plays)), key=self._bound)

    def add(self, rank: str, machine: int, won: bool) -> None:
        """A machine was played."""
        with self._lock:
            self.plays[machine] += 1
            self.wins[machine] += won
            self.by_rank[rank] = self.by_rank.get(rank, 0) + 1
            if sum(self.plays) >= self._plays_max:
                self.is_complete.set()

    def report(self) -> dict[str, Any]:
        """The best machine, how often it paid, and who played how often."""
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
            """With one actor: lines of JSON."""

            def handle(self) -> None:
                rank = json.loads(self.rfile.readline() or b'{"rank": ""}')["rank"]
                while (machine := counts.next_machine()) is not None:
                    self.wfile.write(json.dumps({"play": machine}).encode() + b"\n")
                    answer = self.rfile.readline()
                    if not answer:
                        return  # It has died; what it was asked to play, nobody has played.
                    counts.add(rank, machine, json.loads(answer)["won"])
                self.wfile.write(b'{"play": null}\n')

        class Door(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._client = Door(("", 0), Conversation)
        threading.Thread(target=self._client.serve_forever, daemon=True).start()
        self.address = f"{own_ip()}:{self._client.server_address[1]}"

    def run(self) -> dict[str, Any]:
        """Wait until enough was played; what comes back is the job's result."""
        self.counts.is_complete.wait()
        self._client.shutdown()
        self._client.server_close()
        return self.counts.report()


class Actor:
    """A worker."""

    def __init__(self, seed: int = 7) -> None:
        self.rank = os.environ["SCHEDULEMESH_RANK"]
        self.leader = os.environ["SCHEDULEMESH_LEADER_ADDRESS"]
        self.random = random.Random(f"{seed}:{self.rank}")  # noqa: S311  games of chance, not secrets

    def run(self) -> int:
        """Play until the learner has enough; how often it was.

        Raises:
            ConnectionError: The learner is gone. The mesh starts the actor again, with the new address if there is one.
        """
        host, _, port = self.leader.rpartition(":")
        plays = 0
        with socket.create_connection((host, int(port)), timeout=CONNECT_S_MAX) as line, line.makefile("rwb", buffering=0) as talk:
            line.settimeout(None)
            talk.write(json.dumps({"rank": self.rank}).encode() + b"\n")
            while reported := talk.readline():
                machine = json.loads(reported)["play"]
                if machine is None:
                    return plays
                talk.write(json.dumps({"won": self.random.random() < WIN_RATES[machine]}).encode() + b"\n")
                plays += 1
        raise ConnectionError(f"the learner at {self.leader} has hung up")


def own_ip() -> str:
    """Of this machine, as others of its network reach it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # An address for documentation, which is nobody's.
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
