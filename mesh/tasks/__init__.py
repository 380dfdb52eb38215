"""The local scheduler's core: queue, order, admit, place, preempt. Pure: events in, decisions out; no Ray, no clock, no randomness.

State and steps:

    scheduler   handles events; the only caller that changes the state
    state       the whole state: owns its fields, and composes the owners below
    events      inputs of the scheduler
    decisions   outputs of the scheduler
    settings    settings that may change while it runs
    journal     events and decisions as JSON lines
    snapshot    the state as one frozen value, and back

Owners of parts of the state:

    capacity            node resources, quota and placement groups, and who holds them
    task_ledger         records, states and queue positions of tasks
    records             records of tasks, shapes, evictions, reservations
    task_queues         one queue per state, one transition function
    queues              pending tasks by priority and age
    queued_shapes       queued tasks that are alike, and the rules that say so
    relations           dependencies, gangs, calls on agents
    eviction_ledger     evictions, and what they hold
    reservation_ledger  reservations of tasks and jobs, and what they hold

Tasks:

    admitting           one pass over the queue; gangs all or nothing
    lifecycle           ends of tasks and groups, and their effects
    request_validation  validation of a single request
    explaining          why, where and how long a task waits

Placement:

    placing         choice of node or group for one task
    gang_placement  joint placement of several bundles
    reserving       reservations for tasks that waited too long

Preemption:

    evicting      stop victims and hold what they free
    gang_victims  cheapest victims for several bundles at once
"""
