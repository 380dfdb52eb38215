"""Federation of meshes under one tree of tenants: quota, routing, planning and leases. A core without Redis; `store` has the adapters.

Folders:

    quota          admission, order and preemption under quota          planning    targets by which leases grow and shrink
    routing        choice of the mesh for each stage                    explaining  why a stage waits, and for how long
    child          a child mesh, between its queue and its runners      config      the federation file, parsed and validated
    usage          use by tenant, user, flavor and day, for bills
    conformance    cases of other projects, run against the core        store       the ports of this folder, on Redis and in memory

Tenants and their quota:

    tenants        the tenant tree and its quota arithmetic             reparenting  the tree after a tenant moved to another parent
    leases         quota that a mesh may use without a call to the root  auditing   comparison of a ledger's sums with its leases
    receipts       the root's signature over a lease                     mesh_access  tenants that may use a mesh

Meshes:

    registry       drains, flap detection and run times of meshes       configured_meshes  meshes and flavors in the root's file
    mesh_conditions  stored status of one mesh                            flap_detection  probation of a mesh that was lost and came back
    estimates      wait and transfer times at a mesh
    snapshot       tenants, leases and meshes at one instant            stage_metrics  scheduling metrics of stages

Between the root, meshes and clients:

    dispatch       queued stages, claims and reports                    blobs       opaque bytes in the control store
    link           the child's verbs over HTTP, without a key to Redis  api_keys    keys that authenticate tenants and meshes
    durability     failures that accepted work survives                 redis_url   URLs of a server, of sentinels or of a cluster
    run_log        what the nodes of runs print                          change_log  changes that people made, refused ones included

    file_problems  a problem in a file, with its position               errors      the federation's errors, below `mesh.errors`
    manual_mesh    for tests: a mesh that calls a ledger by hand
"""
