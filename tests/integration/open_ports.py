"""Listening ports of processes, and their answers to callers without a token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil

#: One call for each kind of server in a Ray cluster, none of which changes anything.
CALLS = (
    "/ray.rpc.NodeInfoGcsService/CheckAlive",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/NumPendingTasks",
    "/ray.rpc.RayletDriver/ClusterInfo",
    "/ray.rpc.HealthzAgentService/Healthz",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.serve.ASGIService/HandleRequest",
)
#: Run in a process of its own: gRPC's threads do not survive forks.
_ASK = """
import http.client, json, sys, grpc
ports, calls = json.loads(sys.argv[1])
found = []
for host, port in ports:
    said = set()
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        for call in calls:
            try:
                channel.unary_unary(call, request_serializer=bytes, response_deserializer=bytes)(b"", timeout=20)
                said.add("OK")
            except grpc.RpcError as refused:
                said.add(refused.code().name)
    if said == {"UNAVAILABLE"}:
        try:
            asked = http.client.HTTPConnection(host, port, timeout=20)
            asked.request("GET", "/no-such-page")
            said.add(f"HTTP {asked.getresponse().status}")
        except (OSError, http.client.HTTPException):
            pass
    found.append(sorted(said - {"UNAVAILABLE", "UNIMPLEMENTED"}))
print(json.dumps(found))
"""


class Listener(NamedTuple):
    """Socket that takes connections."""

    program: str
    host: str  #: Address that it is bound to.
    port: int


def listeners(sessions: Iterable[int]) -> list[Listener]:
    """Return all TCP sockets on which processes of these sessions listen."""
    wanted, found = set(sessions), []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):  # It ended meanwhile.
            if os.getsid(process.pid) in wanted:
                program = " ".join(process.cmdline())
                found += [
                    Listener(program, socket.laddr.ip, socket.laddr.port)
                    for socket in process.net_connections(kind="tcp")
                    if socket.status == psutil.CONN_LISTEN
                ]
    return found


def answers(sockets: Iterable[Listener]) -> list[list[str]]:
    """Return the answers of each to callers without a token; empty: nothing of what they request."""
    ports = [(_reached_at(socket.host), socket.port) for socket in sockets]
    asked = subprocess.run([sys.executable, "-c", _ASK, json.dumps((ports, CALLS))], stdout=subprocess.PIPE, check=True)
    said: list[list[str]] = json.loads(asked.stdout)
    return said


def _reached_at(host: str) -> str:
    return "127.0.0.1" if host in ("::", "0.0.0.0") else host.removeprefix("::ffff:")  # noqa: S104  compared with, not bound to
