"""What can break, as one tree.

    MeshError                        every error of ScheduleMesh
    ├── AmountError                  a quantity that is negative, unknown or finer than 1/10 000
    ├── SelectorError                a label selector that is not one; tells the key and the place in its value
    ├── IllegalTransition            a state machine met an event that its table has no row for
    ├── JobSpecError                 a job that contradicts itself; the message names each key and the remedy
    ├── LedgerError                  a ledger was asked for what it cannot do (release of the unknown, over-commit)
    ├── RuntimeAdapterError             Ray, Redis or a file answered with something that cannot be gone round
    ├── federation.errors.FederationError
    └── dag.errors.DagError

A refusal is no error: it is a `Refused` value with a `Reason`.
"""


class MeshError(Exception):
    """Root of the tree; catch it to catch everything that ScheduleMesh raises."""


class AmountError(MeshError, ValueError):
    """A quantity is negative, of an unknown form, or finer than the ledger's unit."""


class SelectorError(MeshError, ValueError):
    """A label selector cannot be read; the message tells the key, the place in its value and the remedy."""


class IllegalTransition(MeshError):
    """A state machine met an event that its table has no row for; the message tells the object's story."""


class JobSpecError(MeshError, ValueError):
    """A job contradicts itself or has unknown keys; each line of the message names a key and the remedy."""


class LedgerError(MeshError):
    """A ledger was asked for what it cannot do: release of the unknown, commit beyond the reserved."""


class RuntimeAdapterError(MeshError):
    """The other side of a door (Ray, Redis, a file) is gone or answers garbage; the message names it and the remedy."""
