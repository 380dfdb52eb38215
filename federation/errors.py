"""The federation's branch of the error tree.

FederationError
├── ConfigError          the YAML is wrong; the message names file, line, path and remedy
├── UnknownTenant        no such path in the tenant tree
├── UnknownMesh          no mesh of this name was ever seen
├── SessionLost          the ledger no longer knows this incarnation of the mesh: stop its work, join again
├── StaleFence           a message under a claim that is not current: a late result of a dead attempt
└── StoreUnavailable     Redis does not answer
"""

from mesh.errors import MeshError, RuntimeDoorError


class FederationError(MeshError):
    """Root of the federation's errors."""


class ConfigError(FederationError):
    """The configuration is wrong. Each line of the message names file, line, path and what to write instead."""


class UnknownTenant(FederationError):
    """No such path in the tenant tree."""


class UnknownMesh(FederationError):
    """No mesh of this name was ever seen by the federation."""


class SessionLost(FederationError):
    """The ledger no longer knows this incarnation of the mesh; its leases are gone. Stop its work and join again."""


class StaleFence(FederationError):
    """A message under a claim that is not current: the late word of a dead attempt. It was not applied."""


class StoreUnavailable(FederationError, RuntimeDoorError):
    """Redis does not answer; nothing is known about whether the last command took effect."""
