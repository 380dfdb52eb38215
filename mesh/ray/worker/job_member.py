"""Member of a job in a process of its own: a Ray actor in a bundle of the job's gang."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple

import ray

from mesh.core.ids import NodeId, StageId
from mesh.jobs.members import LEADER_ADDRESS
from mesh.ray.user_code.node_output import OutputCapture
from mesh.ray.worker.plain_calls import as_plain
from mesh.stages.messages import OUTPUT_CHARS_MAX, NodeOutput


class MemberCode(NamedTuple):
    """Class or function that the members of a role run."""

    code: Callable[..., Any]  #: A class, or a function when `method` is None.
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    method: str | None  #: Method of the class that runs; workers without it stay until the job is over.


class OutputTarget(NamedTuple):
    """Receiver of the lines that a member prints: the log of the job's node."""

    runner: Any
    stage: StageId
    node: NodeId
    attempt: int

    def send(self, member: str, outputs: list[NodeOutput]) -> Future[Any]:
        """Hand lines to the runner, each with the name of the member."""
        named = [replace(output, lines=tuple(f"{member}: {line}"[:OUTPUT_CHARS_MAX] for line in output.lines)) for output in outputs]
        answer: Future[Any] = self.runner.output.remote(named).future()
        return answer


class MemberOutput:
    """Output of this process on its way to the log of a node, until `end`."""

    def __init__(self, target: OutputTarget, name: str) -> None:
        self._capture, self._captured = OutputCapture(), contextlib.ExitStack()
        send = functools.partial(target.send, name)
        self._captured.enter_context(self._capture.of(send, target.stage, target.node, target.attempt))

    @contextlib.contextmanager
    def until_error(self) -> Iterator[None]:
        """Hand on the output before an error ends the member."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Hand on what was not handed on yet, and read no more."""
        self._captured.close()
        self._capture.flush()


class JobMember:
    """The leader, or a worker: `up` makes its object, `run` calls its method or function.

    Args:
        env: Environment variables, set before its code is loaded.
        name: Name of the member.
        target: Where its output goes.
    """

    def __init__(self, env: Mapping[str, str], name: str, target: OutputTarget) -> None:
        os.environ.update(env)
        self._output = MemberOutput(target, name)
        self._run: Callable[[], Any] | None = None
        self._keeps_value = False

    def up(self, code: MemberCode, *, is_leader: bool) -> str:
        """Make the object; return the leader's address, empty for a worker.

        A leader without an `address`, an attribute or a method, finds a free address of its node in its environment.
        """
        with self._output.until_error():
            return self._up(code, is_leader=is_leader)

    def run(self) -> Any:
        """Call the method or function, to its end; return its value if this is the leader."""
        if self._run is None:
            raise RuntimeError("the member is not up")
        with self._output.until_error():
            value = self._run()
        self._output.end()
        return value if self._keeps_value else None

    def _up(self, code: MemberCode, *, is_leader: bool) -> str:
        self._keeps_value = is_leader
        if is_leader:
            os.environ.setdefault(LEADER_ADDRESS, free_address())
        if code.method is None:
            self._run = lambda: as_plain(code.code)(*code.args, **code.kwargs)
            return os.environ[LEADER_ADDRESS] if is_leader else ""
        made = code.code(*code.args, **code.kwargs)
        method = getattr(made, code.method, None)
        self._run = as_plain(method) if callable(method) else _stay
        if not is_leader:
            return ""
        address = getattr(made, "address", "")
        address = address() if callable(address) else address
        return str(address) if address else os.environ[LEADER_ADDRESS]


def free_address() -> str:
    """Return a free address of this node, host and port."""
    host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # untyped in Ray
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stay() -> None:
    """Wait until the process ends."""
    threading.Event().wait()
