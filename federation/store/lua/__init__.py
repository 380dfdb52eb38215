"""What must be whole on Redis: a script for each verb, put together by `federation.store.redis_scripts` with the parts that it needs.

The ledger as a whole:

    init        founded: identity, terms, first epoch                tree               the configured tenants, part by part
    draft       parts of a tree, noted before it is put in force     configure          put in force, with all use counted anew
    elect       who is the planner, or goes on being it              plan_apply         what leases shall come to
    snapshot    all that routing and people look at, at one instant  note               what a coordinator has seen of meshes, written down
    sweep       what is overdue by more than the grace, taken back

A session, and its leases:

    join        a session of a mesh begins                           heartbeat          it is renewed, with all that it holds
    renew       the same where nothing else is to be done            leave              it ends in good order
    acquire     whole slots, as many as the tree allows              release            what a lease holds above an amount, given back
    revoke      leases aimed at nothing, hard or not

Stages, and claims on them:

    submit      queued at a mesh, once                               claim              taken under a live lease, with a fencing token
    claims_of   what a session has claimed and not ended             resume             how its claims stand, and lost ones made again
    report      messages into the inbox, under the current claim     deliver            an input, once, and its mesh is told
    cancel      a stage stopped, or marked for its mesh              take_back_overdue  claims ended that took too long
    forget      the stages of a run dropped, and its values let go   explain            why queued stages wait; only a change is told

What is looked up:

    queued      which stages are queued at a mesh, in order          waiting            the queued stages themselves
    heads_of    what a mesh must know of them                        ages               how old the oldest are, and the youngest claimed
    remembered  which stages were sent and are not forgotten         orphans            records whose other half is lost

Parts that several verbs need:

    lib_keys    names for the keys that a verb is given              lib_schema         data of another schema are left alone
    lib_full    how a verb passes on a server that is full           lib_clock          the lease clock, and is Redis the one it was
    lib_wall    the server's time, for people alone                  lib_text           whole numbers as text, to the last digit
    lib_caller  is the caller's session still its session            lib_session        one life of a mesh, as a row
    lib_lease   leases, as rows                                      lib_tree           quota arithmetic on rows, as in `federation.tenants`
    lib_stage   a stage's record                                     lib_claim          a claim made: what pays, what is written
    lib_ending  what goes with a session that ends                   lib_post           letters to meshes, messages about runs
"""
