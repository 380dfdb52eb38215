"""The federation's branch of the error tree.

FederationError
├── ConfigError               the YAML is wrong; the message names file, line, path and remedy
│   └── TenantCycle           a tenant would be its own ancestor
├── UnknownTenant             the tenant tree has no such path
├── UnknownMesh               no mesh of this name ever joined
├── MeshMisfit                a mesh's record contradicts the root's file
├── SessionLost               the ledger refuses this session: stop its work, join again
│   ├── SessionUnknown        the ledger has no session of this mesh
│   ├── SessionSuperseded     the mesh has joined again since
│   ├── SessionExpired        the session was not renewed in time
│   └── ForeignLedger         this is another ledger than the one that the session joined
├── LeaseLost                 a claim under a lease that is not held, or was revoked
├── EpochChanged              the ledger may have lost writes: repeat the call with all leases held; work goes on
├── HoldingsRequired            the ledger recovers: the heartbeat must report all leases held
├── StaleHeartbeat                 a later heartbeat has overtaken this one
├── LedgerRecovering            the ledger recovers and does not know all leases yet: no claims and no plans for now
├── LedgerUninitialised       the server holds no ledger
├── LedgerMissing             the server holds no ledger, but held one before
├── LedgerUnsafe              the server's settings could lose or evict leases
├── ForgedReceipt             a claimed lease without the root's signature
├── FutureToken               a token that no ledger can have issued yet
├── UnfitName                 a name that would be ambiguous in a row of the ledger
├── BatchTooLarge             too many rows in one call
├── TreeChanged               the tenant tree is not the one that the change was made for
├── QuotaExceeded             a plan or a change of the tree would exceed a limit
├── PlannerSuperseded         another planner is the leader now
├── StaleFence                a message under a claim that is not current: a late result of a dead attempt
├── EarlierReportsLost        the store has lost earlier reports: repeat them first
├── DurabilityUnreachable     the store cannot reach the durability asked for
├── TooManyClaims             a mesh has claimed far more than its leases pay for
└── StoreUnavailable          neither the store nor a root that leads to it responds
    ├── SchemaMismatch        another version of this program has written the store's data
    └── LinkRefused           a root refuses this mesh: its key, its name or its version is wrong
        └── CallRejected      a root will never accept this one call
"""

from federation.file_problems import FileProblem
from mesh.errors import MeshError, RuntimeAdapterError


class FederationError(MeshError):
    """Root of the federation's errors."""


class ConfigError(FederationError):
    """Invalid configuration. Each line of the message names file, line, path and remedy.

    Args:
        located: The same problems as values, one per line; empty if they concern no file.
        warnings: Allowed settings that deserve a look; empty if they cannot be determined.
    """

    def __init__(self, message: str = "", *, located: tuple[FileProblem, ...] = (), warnings: tuple[FileProblem, ...] = ()) -> None:
        super().__init__(message or "\n".join(map(str, located)))
        self.located = located
        self.warnings = warnings


class TenantCycle(ConfigError):
    """A tenant would be its own ancestor."""


class UnknownTenant(FederationError):
    """The tenant tree has no such path."""


class UnknownMesh(FederationError):
    """No mesh of this name ever joined the federation."""


class MeshMisfit(FederationError):
    """A mesh's record contradicts the root's file, so the mesh cannot join. The message names the remedy and its place."""


class SessionLost(FederationError):
    """The ledger refuses this session; its leases are gone or expire. Stop its work and join again."""


class SessionUnknown(SessionLost):
    """The ledger has no session of this mesh."""


class SessionSuperseded(SessionLost):
    """The mesh has joined again since; only its latest session may call."""


class SessionExpired(SessionLost):
    """The session was not renewed in time."""


class ForeignLedger(SessionLost):
    """This is another ledger than the one that the session joined; drain a mesh before it joins another."""


class LeaseLost(FederationError):
    """The lease that should pay is not held, or was revoked since; the next response of the ledger has the current leases."""


class EpochChanged(FederationError):
    """The ledger may have lost writes and began an epoch: repeat the call under this epoch, with all leases held.

    Work goes on: the leases stay valid.
    """

    def __init__(self, message: str, *, epoch: int, recovery_ms: int) -> None:
        super().__init__(message)
        self.epoch = epoch  #: The current epoch.
        self.recovery_ms = recovery_ms  #: How long the ledger grants nothing new, ms.


class HoldingsRequired(FederationError):
    """The ledger recovers: the heartbeat must report all leases that the mesh holds."""


class StaleHeartbeat(FederationError):
    """A later heartbeat has overtaken this one; it changed nothing."""


class LedgerRecovering(FederationError):
    """The ledger does not know all leases yet, so nothing new begins; retry later."""


class LedgerUninitialised(FederationError):
    """The server holds no ledger; `configure` creates one."""


class LedgerMissing(FederationError):
    """The server holds no ledger, but the root that starts knows of an earlier one: this may be the wrong server."""


class LedgerUnsafe(FederationError):
    """The server's settings could lose or evict leases; each line of the message names a setting and the remedy."""


class ForgedReceipt(FederationError):
    """A mesh claims a lease that the root has not signed."""


class FutureToken(FederationError):
    """A token that no ledger can have issued yet: a clock is far ahead, or the token is invented."""


class UnfitName(FederationError):
    """A tenant, flavor or resource name is empty, or holds `|`, a control character or a line end; nothing was changed."""


class BatchTooLarge(FederationError):
    """The call has too many rows and would block other callers; send them in parts."""


class TreeChanged(FederationError):
    """The tenant tree is not the one that the change was made for; read the tree again."""


class QuotaExceeded(FederationError):
    """A plan or a change of the tree would exceed a limit; nothing was changed."""


class PlannerSuperseded(FederationError):
    """Another planner is the leader now, or this planner's term has expired."""


class StaleFence(FederationError):
    """A message under a claim that is not current: a late message of a dead attempt. It was not applied."""


class EarlierReportsLost(FederationError):
    """The store has lost reports that it had accepted before this one; nothing was applied. Repeat those reports, then this one."""


class DurabilityUnreachable(FederationError):
    """The store's present setup cannot reach the durability asked for. Nothing was accepted."""


class TooManyClaims(FederationError):
    """A mesh has claimed far more than its leases pay for; it gets no more claims until it ends some."""


class StoreUnavailable(FederationError, RuntimeAdapterError):
    """Neither the store nor a root that leads to it responds; the last command may or may not have taken effect."""


class SchemaMismatch(StoreUnavailable):
    """Another version of this program has written the store's data; nothing was read and nothing was written.

    Callers see an unavailable store: work stops at its deadline, as if the store were down, until an operator acts.
    """


class LinkRefused(StoreUnavailable):
    """A root refuses this mesh; the message says whether its key, its name or its request is wrong.

    An operator has to act. The mesh may retry until then, so callers see an unavailable store.
    """


class CallRejected(LinkRefused):
    """A root will never accept this call from any mesh: the call is too large, or does not fit its verb.

    Other calls may succeed, so a caller with further calls must not wait for this one.
    """
