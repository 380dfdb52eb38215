"""A stage of the federation on a mesh: admission into room that leases pay for, and its life on a host. Pure.

Admission:

    admission             events to decisions: starts, growth, reservations
    workloads             a stage as admission knows it
    waiting_kinds         who is tried next, and why others wait
    admission_kinds       stages that are refused alike
    admission_room        room in pools, nodes and reserved groups
    slot_placement        nodes of a mesh, and the slots on them
    reserved_groups       groups held for urgent stages
    admission_order       order of a tenant's stages
    stage_settings        settings of a mesh: node weights, preemption, queues
    admission_events      events that admission handles
    admission_decisions   decisions that admission returns
    admission_invariants  invariants after every step

Running:

    spec            a stage as a mesh gets it; argument forms
    calls           calls of functions as columns
    call_shapes     forms of their arguments, with holes
    arrays          arrays: their parts, and the tree of a reduction
    stage_machine   submit, wait or drop each task of a stage
    slot_window     places of a stage's slots: the next task's group, retired groups
    chunks          tasks that a worker gets at once, and what becomes of them
    hosting         the port to a host that runs stages
    messages        reports of a mesh about its stages
    arguments       argument forms to arguments, and to nodes
    lease_deadline  how long proved leases let work run
    idle_groups     kept placement groups: reuse or evict
    simulated_host  a stage host without Ray, in virtual time
"""
