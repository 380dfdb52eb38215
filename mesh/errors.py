"""What can break, as one tree.

    MeshError                        every error of ScheduleMesh
    ├── AmountError                  a quantity that is negative, unknown or finer than 1/10 000
    ├── IllegalTransition            a state machine met an event that its table has no row for
    ├── LedgerError                  a ledger was asked for what it cannot do (release of the unknown, over-commit)
    ├── RuntimeDoorError             Ray, Redis or a file answered with something that cannot be gone round
    ├── federation.errors.FederationError
    └── dag.errors.DagError

A refusal is no error: it is a `Refused` value with a `Reason`.
"""


class MeshError(Exception):
    """Root of the tree; catch it to catch everything that ScheduleMesh raises."""


class AmountError(MeshError, ValueError):
    """A quantity is negative, of an unknown form, or finer than the ledger's unit."""


class IllegalTransition(MeshError):
    """A state machine met an event that its table has no row for; the message tells the object's story."""


class LedgerError(MeshError):
    """A ledger was asked for what it cannot do: release of the unknown, commit beyond the reserved."""


class RuntimeDoorError(MeshError):
    """The other side of a door (Ray, Redis, a file) is gone or answers garbage; the message names it and the remedy."""
