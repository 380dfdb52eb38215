"""Every named cause of waiting or refusal; a user meets these words in `runs`, over HTTP and in the docs."""

from enum import Enum


class Reason(str, Enum):
    """Why something does not happen now (or ever). The value is the word on the wire."""

    LABEL_MISMATCH = "LABEL_MISMATCH"
    """The mesh lacks a label that the work asks for, or carries one that it shuns."""
    MESH_UNREACHABLE = "MESH_UNREACHABLE"
    """The mesh has joined no session, or its heartbeat is overdue."""
    MESH_DRAINING = "MESH_DRAINING"
    """The mesh finishes what it has and takes nothing new."""
    TENANT_NOT_ALLOWED = "TENANT_NOT_ALLOWED"
    """The mesh is closed to this tenant."""
    CAPACITY_TOO_SMALL = "CAPACITY_TOO_SMALL"
    """No pool of the mesh could hold the work even when empty."""
    CAPACITY_BUSY = "CAPACITY_BUSY"
    """A pool could hold the work, and is full now."""
    QUOTA_TOO_SMALL = "QUOTA_TOO_SMALL"
    """The work is larger than the tenant could ever hold: nominal, borrowing and what others lend."""
    QUOTA_EXHAUSTED = "QUOTA_EXHAUSTED"
    """The tenant may hold this much, and its quota is in use now."""
    LEDGER_UNREACHABLE = "LEDGER_UNREACHABLE"
    """The ledger did not answer when a lease was asked for; it is asked again."""
    NO_MESH_FITS = "NO_MESH_FITS"
    """Every mesh refused; the reasons of each are beside this one."""
    WAITING_FOR_INPUTS = "WAITING_FOR_INPUTS"
    """A value that the work reads is not there yet."""
    WAITING_IN_QUEUE = "WAITING_IN_QUEUE"
    """The work is queued at its mesh, which has not looked at it yet."""
    CANCELLED_BY_USER = "CANCELLED_BY_USER"
    """Somebody asked for it to stop."""
    LEASE_EXPIRED = "LEASE_EXPIRED"
    """The mesh that ran the work was not heard of for longer than its lease lives."""
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    """Something that the work depends on failed; the root causes are beside this one."""
    USER_ERROR = "USER_ERROR"
    """The tenant's own code raised."""
    WORKER_LOST = "WORKER_LOST"
    """A worker process died under the task: crash, out of memory, node lost."""
    VALUE_LOST = "VALUE_LOST"
    """A value that was computed is gone with the process that held it."""
    RESULT_UNSERIALIZABLE = "RESULT_UNSERIALIZABLE"
    """The task's value can neither be written as JSON nor pickled."""
    CODE_UNAVAILABLE = "CODE_UNAVAILABLE"
    """The function could not be imported or unpickled on the mesh, or its runtime environment failed."""
    LOCALITY = "LOCALITY"
    """Chosen: most of the inputs are there already."""
    MOST_HEADROOM = "MOST_HEADROOM"
    """Chosen: the largest free share of quota and capacity."""
    ONLY_FIT = "ONLY_FIT"
    """Chosen: no other mesh accepts the work."""


#: Reasons that a later event may lift; the others hold until somebody changes the configuration or the work.
PASSING: frozenset[Reason] = frozenset(
    {
        Reason.MESH_UNREACHABLE,
        Reason.MESH_DRAINING,
        Reason.CAPACITY_BUSY,
        Reason.QUOTA_EXHAUSTED,
        Reason.LEDGER_UNREACHABLE,
        Reason.WAITING_FOR_INPUTS,
        Reason.WAITING_IN_QUEUE,
    }
)
