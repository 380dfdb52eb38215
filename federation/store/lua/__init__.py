"""Scripts of the Redis stores: one file per atomic verb. `federation.store.redis.scripts` adds the parts that each verb needs.

The ledger as a whole:

    init        create a ledger: identity, times, first epoch        tree               configured tenants, part by part
    draft       store parts of a tree before it is in force          configure          put a tree into force, recompute all use
    elect       become the planner, or renew it                      plan_apply         set targets of leases
    snapshot    all data of routing and displays at one instant      note               store observations of a coordinator
    sweep       reclaim what is overdue by more than the grace

A session, and its leases:

    join        begin a session of a mesh                            heartbeat          renew it, with all its leases
    renew       renew it when nothing else is to do                  leave              end it in order
    acquire     grant whole slots, as many as the tree allows        release            return what a lease holds above an amount
    revoke      set targets of leases to nothing, hard or not

Stages, and claims on them:

    submit      queue a stage at a mesh, once                        claim              claim it under a live lease, with a fencing token
    claims_of   open claims of a session                             resume             state of its claims; make lost ones again
    report      put messages into the inbox, under the claim         deliver            deliver an input, once, and notify the mesh
    cancel      cancel a stage, or mark it for its mesh              take_back_overdue  end claims that exceed their deadline
    forget      drop the stages of a run                             explain            record why queued stages wait
    append_log  append output of nodes to the log of their run, under the claim

Changes that people make:

    append_change  append an entry to a bounded log, under the next number

Use of quota over time:

    usage_write  write rows by day, once, and remove the reports that they count

Reads:

    queued      ids of the stages queued at a mesh, in order         waiting            the queued stages themselves
    heads_of    what a mesh must know of them                        ages               ages of the oldest and youngest stages
    remembered  stages that were sent and are not forgotten          orphans            records without index, or index without record

Parts that several verbs need:

    lib_keys    names of the keys that a verb gets                   lib_schema         refusal of data of another schema
    lib_full    permission to run on a full server                   lib_clock          lease clock, and detection of restarts
    lib_wall    the server's time, for ages of stages                lib_text           whole numbers as text, to the last digit
    lib_caller  checks of the caller's session                       lib_session        sessions as rows
    lib_lease   leases as rows                                       lib_tree           quota arithmetic, as in `federation.tenants`
    lib_stage   a stage's record                                     lib_queue          queue of a mesh, and demands of its stages
    lib_claim   creation of a claim                                  lib_ending         effects of the end of a session
    lib_post    notifications to meshes, messages about runs         lib_usage          reports on what claims hold
"""
