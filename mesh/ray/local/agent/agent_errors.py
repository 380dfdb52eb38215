"""Errors of calls to an agent, beside the errors of user code."""

from __future__ import annotations

from mesh.errors import MeshError


class NothingHosted(MeshError):
    """The agent hosts no task, or not the called one: the task ended, was preempted, or was replaced."""


class NoSuchMethod(MeshError, AttributeError):
    """The task's object has no such method; the message lists its methods."""


class CallPreempted(MeshError):
    """The call was not finished because its task was asked to stop. State is saved as configured; call again later."""
