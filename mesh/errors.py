"""All errors, as one tree.

    MeshError                        every error of ScheduleMesh
    ├── AmountError                  a quantity that is negative, unknown or finer than 1/10 000
    ├── SelectorError                an invalid label selector; names the key and the place in its value
    ├── IllegalTransition            a state machine met an event that its table has no row for
    ├── JobSpecError                 a job that contradicts itself; the message names each key and the remedy
    ├── JobFailed                    a job whose leader failed too often, or that has too few workers left
    ├── LedgerError                  an invalid ledger operation (release of the unknown, over-commit)
    ├── OutsideGroup                 code of a node asked Ray for resources outside its stage's placement group
    ├── ProgramFailed                the program of a node ended with another exit code than 0
    ├── RuntimeAdapterError          Ray, Redis or a file failed or answered garbage, without a way to go on
    ├── federation.errors.FederationError
    └── dag.errors.DagError

A refusal is no error: it is returned, with a `Reason`.
"""

from __future__ import annotations


class MeshError(Exception):
    """Root of the tree; catch it to catch everything that ScheduleMesh raises."""


class AmountError(MeshError, ValueError):
    """A quantity is negative, of an unknown form, or finer than the ledger's unit."""


class SelectorError(MeshError, ValueError):
    """A label selector cannot be parsed; the message names the key, the place in its value and the remedy."""


class IllegalTransition(MeshError):
    """A state machine met an event that its table has no row for; the message holds the object's history."""


class JobSpecError(MeshError, ValueError):
    """A job contradicts itself or has unknown keys; each line of the message names a key and the remedy."""


class JobFailed(MeshError):
    """A job failed: its leader failed too often, or too few workers are left; the message has the last error."""


class LedgerError(MeshError):
    """A ledger operation is invalid: release of the unknown, commit beyond the reservation."""


class OutsideGroup(MeshError):
    """Code of a node asked Ray for resources outside its stage's placement group; the message names the amounts and the remedy."""


class ProgramFailed(MeshError):
    """The program of a node ended with another exit code than 0; the message names the command."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code  #: As a shell gives it: 128 and the signal, 127 for a command that was not found.

    def __reduce__(self) -> tuple[type[ProgramFailed], tuple[int, str]]:
        return (type(self), (self.exit_code, str(self)))


class RuntimeAdapterError(MeshError):
    """An external system (Ray, Redis, a file) is gone or answers garbage; the message names it and the remedy."""
