"""The stores on Redis: one script per decision.

Ports:

    ledger      use of every node, and the rest
    queue       stages, claims, notifications and the inbox
    registry    the registry of meshes: one hash
    policies    preemption policies and rules of a queue
    key_ring    keys of clients and meshes: one hash
    blobs       blobs of a run: one hash per run
    run_log     logs of runs: a stream and a hash per run
    change_log  changes that people made: a stream per top-level tenant
    usage       reports on use: a stream; rows: a hash per day
    durability  waits for disk or replicas
    election    leader election for coordinators
    safety      checks whether a server may hold leases

Calls:

    client          calls with a bounded time
    scripts         calls of the Lua verbs, and their errors
    keys            every key, in one place
    session_calls   common arguments of a session's scripts
    change_counter  detects an older copy of a server's data
    embedded        a Redis server beside this process

Caches of the ledger:

    row_cache   cache of parsed rows
    tree_cache  cache of the tree in force

    fixtures  a real Redis with a manual clock
"""
