"""Adapters of the ports of `federation`: on Redis, with one script per decision; in memory, for tests and simulations; over HTTP.

On Redis:

    redis_ledger      leases and sessions, one script per decision  redis_queue        stages, claims, notifications and the inbox
    redis_registry    the registry of meshes: one hash              redis_policies     settings of tenants, and stops
    redis_key_ring    keys of clients and meshes: one hash          redis_blobs        blobs of a run: one hash per run
    redis_durability  waits for disk or replicas                    redis_election     leader election for coordinators
    redis_safety      checks whether a server may hold leases       redis_client       calls with a bounded time
    redis_scripts     calls of the Lua verbs, and their errors      lua                the verbs, one file each
    keys              every key, in one place                       embedded           a Redis server beside this process

Rows of the ledger:

    lease_rows        leases, wants and sessions                    tree_rows          a tenant tree
    tree_diff         changed rows of a tree with few changes       row_cache          cache of parsed rows
    tree_cache        cache of the tree in force                    session_calls      common arguments of a session's scripts
    report_parts      numbers of the parts of a large batch         inbox_entries      checks and messages of both stage queues
    change_counter    detects an older copy of a server's data

In memory:

    memory            ledger, stage queue and blobs in one process  memory_ledger      leases, with the decisions of the scripts
    memory_ledger_state  clock, tokens, epochs, and session checks     memory_sessions    tenants and sessions
    memory_demands    recorded wants                                memory_rows        rows of sessions and leases
    memory_registry   the registry of meshes                        memory_policies    settings of tenants, and stops
    memory_key_ring   keys of clients and meshes                    memory_durability  durability without a disk

    http_link         the child's ports over HTTP, with a mesh key  redis_fixtures     a real Redis with a manual clock
"""
