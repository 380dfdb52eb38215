"""The ports of `federation`, opened: on Redis, where each decision is one script; in memory, for tests and worlds; and over HTTP.

On Redis:

    redis_ledger      leases and sessions, each decision one script     redis_queue        stages, claims, mail and the inbox
    redis_registry    what is known of meshes: one hash                 redis_orders       what the file says of tenants, and who is stopped
    redis_key_ring    the keys of clients and meshes: one hash          redis_blobs        a run's bytes: a hash per run
    redis_durability  a synced write, or one that replicas have         redis_seat         one process at a time, to save work
    redis_safety      is this server fit to hold leases                 redis_client       calls that end within a known time
    redis_scripts     the verbs of `lua`, called; their errors told     lua                the verbs, a file each
    keys              every key, in one place                           embedded           a server of our own, beside this process

Rows that go there and come back:

    lease_rows        leases, wants and sessions                        tree_rows          a tenant tree
    amendment         few rows, where few tenants have changed          known_rows         rows once read; read again when changed
    known_tree        the tree in force, read once                      session_calls      what all scripts of a session are told first
    report_parts      how the messages of a batch are numbered          stage_letters      what both stage queues check and write
    orders_given      what tells an older copy of a server from itself

In memory:

    memory            ledger, stage queue and blobs in one process      memory_ledger      leases, by the same decisions as the scripts
    memory_book       clock, tokens, epochs, and who may speak          memory_sessions    tenants and sessions: joined, renewed, ended
    memory_wants      what was wanted and not granted                   memory_rows        what sessions and leases are made of
    memory_registry   what is known of meshes                           memory_orders      what holds for tenants, and who is stopped
    memory_key_ring   the keys of clients and meshes                    memory_durability  the word for where there is no disk

    http_link         the child's ports, with no key but to the root    testing            a real Redis, its time moved by hand
"""
