"""Many meshes under one tree of tenants: who may use how much where, which mesh gets which work. A core; Redis stands in `store`.

Its rooms:

    quota          who may start what, who waits, who gives way         planning    which lease shall grow, which shall shrink
    routing        which mesh gets a piece of work                      explaining  why a stage waits, and for how long
    child          a child mesh, between its queue and its runners      config      the federation file, read and checked
    conformance    cases that others made, run against the core         store       the ports of this folder, on Redis and in memory

Tenants, and what they may use:

    tenants        the tenant tree and its quota arithmetic             moving      the tree after a tenant went to another parent
    tenant_orders  what holds for a tenant beside its limits            leases      what a mesh may spend without asking anybody
    receipts       the root's signature over a lease                    auditing    do the counts of a ledger agree with its leases

Meshes:

    registry       which are drained, how steady, how fast              roster      which meshes and flavors the root's file names
    standing       what is remembered of a mesh beside its own word     steadiness  whether one that was lost gets new work again
    promises       pools, held against what the Ray cluster has         estimates   how long work and its inputs would take there
    snapshot       tenants, leases and meshes at one instant

Between the root, meshes and clients:

    dispatch       stages on their way, claims, and what comes back     blobs       bytes that travel along and that nobody here reads
    link           the child's verbs over HTTP, without a key to Redis  api_keys    which tenant a client is, which mesh a mesh
    durability     how much has to break before work is lost            redis_url   which server, sentinels or cluster are meant

    located        what is wrong with a file, and at which place        errors      what can break here, below `mesh.errors`
    testing        for tests: a mesh that talks to a ledger by hand
"""
