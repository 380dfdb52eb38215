"""The federation's branch of the error tree.

FederationError
├── ConfigError               the YAML is wrong; the message names file, line, path and remedy
│   └── TenantCycle           a tenant would be its own ancestor
├── UnknownTenant             no such path in the tenant tree
├── UnknownMesh               no mesh of this name was ever seen
├── MeshMisfit                a mesh tells of itself what the root's file rules out
├── SessionLost               the ledger does not listen to this session any more: stop its work, join again
│   ├── SessionUnknown        the ledger has no session of this mesh
│   ├── SessionSuperseded     the mesh has joined again since
│   ├── SessionExpired        its time has run out
│   └── ForeignLedger         this is another ledger than the one that was joined
├── LeaseLost                 a claim under a lease that is not held, or was revoked
├── EpochChanged              the ledger may have lost writes: say again, with all that is held; work goes on
├── HoldingsWanted            the ledger learns: a heartbeat has to tell all that is held
├── StaleBeat                 a heartbeat that a later one has overtaken
├── LedgerLearning            the ledger does not know yet what is held: no claims, no plans for now
├── LedgerUninitialised       the server holds no ledger
├── LedgerMissing             the server holds no ledger where there was one
├── LedgerUnsafe              the server is set up in a way that could lose or evict leases
├── ForgedReceipt             somebody claims a lease that the root has not signed
├── FutureToken               a token that no ledger can have given out yet
├── UnfitName                 a name that could not be told from others in a row of the ledger
├── BatchTooLarge             more rows in one call than others should wait for
├── TreeChanged               the tenant tree is not the one that the change was made for
├── QuotaExceeded             a plan or a change of the tree would exceed a limit
├── PlannerSuperseded         somebody else plans by now
├── StaleFence                a message under a claim that is not current: a late result of a dead attempt
├── EarlierReportsLost        a report, and the store has lost what was reported before it: say that again first
├── DurabilityUnreachable     more safety was asked for than the store can give
├── TooManyClaims             a mesh has claimed far more than its leases pay for, and not ended it
└── StoreUnavailable          the store does not answer, or no root that leads to it
    ├── SchemaMismatch        the store holds data that another version of this program has laid out
    └── LinkRefused           a root answers, and does not listen to this mesh: its key, its name or its version is wrong
        └── CallRejected      a root answers, and will never take this one call
"""

from federation.located import Located
from mesh.errors import MeshError, RuntimeDoorError


class FederationError(MeshError):
    """Root of the federation's errors."""


class ConfigError(FederationError):
    """The configuration is wrong. Each line of the message names file, line, path and what to write instead.

    Args:
        located: The same line by line, in parts; empty where it is about no file.
        warnings: What is allowed and worth a look; empty as well where that cannot be told.
    """

    def __init__(self, message: str = "", *, located: tuple[Located, ...] = (), warnings: tuple[Located, ...] = ()) -> None:
        super().__init__(message or "\n".join(map(str, located)))
        self.located = located
        self.warnings = warnings


class TenantCycle(ConfigError):
    """A tenant would be its own ancestor."""


class UnknownTenant(FederationError):
    """No such path in the tenant tree."""


class UnknownMesh(FederationError):
    """No mesh of this name was ever seen by the federation."""


class MeshMisfit(FederationError):
    """A mesh tells of itself what the root's file rules out, and is not let in; the message says what to change, and where."""


class SessionLost(FederationError):
    """The ledger does not listen to this session any more; its leases are gone, or run out. Stop its work and join again."""


class SessionUnknown(SessionLost):
    """The ledger has no session of this mesh."""


class SessionSuperseded(SessionLost):
    """The mesh has joined again since; only its latest session may speak."""


class SessionExpired(SessionLost):
    """The session was not renewed in time."""


class ForeignLedger(SessionLost):
    """This is another ledger than the one that the session joined; a mesh drains before it joins another."""


class LeaseLost(FederationError):
    """The lease that was to pay is not held, or was revoked since; look at what the ledger tells next."""


class EpochChanged(FederationError):
    """The ledger may have lost writes, and began an epoch: say again what was said, under this epoch and with all that is held.

    Work goes on: the leases are as good as before.
    """

    def __init__(self, message: str, *, epoch: int, learn_ms: int) -> None:
        super().__init__(message)
        self.epoch = epoch  #: The one that holds now.
        self.learn_ms = learn_ms  #: For how long nothing new is granted.


class HoldingsWanted(FederationError):
    """The ledger learns: a heartbeat has to tell all that the mesh holds."""


class StaleBeat(FederationError):
    """A heartbeat that a later one has overtaken; it changed nothing."""


class LedgerLearning(FederationError):
    """The ledger does not know yet what is held, so nothing new begins; ask again later."""


class LedgerUninitialised(FederationError):
    """The server holds no ledger; who configures it founds one."""


class LedgerMissing(FederationError):
    """The server holds no ledger, and a root that starts knows that there was one: perhaps it is the wrong server."""


class LedgerUnsafe(FederationError):
    """The server is set up in a way that could lose or evict leases; each line of the message names a setting and the remedy."""


class ForgedReceipt(FederationError):
    """Somebody claims a lease that the root has not signed."""


class FutureToken(FederationError):
    """A token that no ledger can have given out yet: a clock is far ahead, or somebody makes tokens up."""


class UnfitName(FederationError):
    """A tenant, flavor or resource has no name, or one that holds `|`, a control character or an end of line; nothing was done."""


class BatchTooLarge(FederationError):
    """More rows in one call than others should wait for; send them in parts."""


class TreeChanged(FederationError):
    """The tenant tree is not the one that the change was made for; look at it again."""


class QuotaExceeded(FederationError):
    """A plan or a change of the tree would exceed a limit; nothing was changed."""


class PlannerSuperseded(FederationError):
    """Somebody else plans by now, or nobody: the time of this planner is over."""


class StaleFence(FederationError):
    """A message under a claim that is not current: the late word of a dead attempt. It was not applied."""


class EarlierReportsLost(FederationError):
    """The store had taken in what was reported before this, and has lost it; nothing was taken in. Report that again, then this."""


class DurabilityUnreachable(FederationError):
    """More safety was asked for than the store, as it is set up, can give. Nothing was accepted."""


class TooManyClaims(FederationError):
    """A mesh has claimed far more than its leases pay for, and has not ended it; it gets nothing more until it has."""


class StoreUnavailable(FederationError, RuntimeDoorError):
    """The store does not answer, or no root that leads to it; nothing is known about whether the last command took effect."""


class SchemaMismatch(StoreUnavailable):
    """The store holds data that another version of this program has laid out; nothing was read into it, and nothing written.

    To those who ask it is a store that does not answer: work stops in its time, as when the store is down, until somebody acts.
    """


class LinkRefused(StoreUnavailable):
    """A root answers, and does not listen to this mesh: the message says what about its key, its name or its words is wrong.

    Somebody has to act, and a mesh may go on asking until then; so to those who ask it is a store that does not answer.
    """


class CallRejected(LinkRefused):
    """A root answers, and will never take this call, whoever makes it: it is larger than any, or not what its verb takes.

    Other calls may well be taken; so whoever has more to say must not wait for this one.
    """
