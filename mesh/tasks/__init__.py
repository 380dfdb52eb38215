"""The local scheduler's core: queue, order, admit, place, preempt. Pure: events in, decisions out; no Ray, no clock, no randomness.

State and steps:

    scheduler   the only writer of the state
    state       the whole state; its methods keep ledgers consistent
    events      inputs of the scheduler
    decisions   outputs of the scheduler
    settings    settings that may change while it runs
    invariants  conditions that hold after every step
    journal     events and decisions as JSON lines, and replay
    snapshot    the state as one frozen value, and back

Tasks:

    records             records of tasks, shapes and preemptions
    task_queues         one queue per state, one transition function
    queues              pending tasks by priority and age
    relations           dependencies, gangs, calls on agents
    queued_shapes       queued tasks that are alike, and the rules that say so
    lifecycle           ends of tasks and groups, and their effects
    request_validation  validation of a single request
    explaining          why, where and how long a task waits

Placement:

    admitting               one pass over the queue
    placing                 choice of node or group for one task
    gangs                   all-or-nothing admission of gangs
    gang_placement          joint placement of several bundles
    reserving               reservations for tasks that waited too long
    placement_reservations  reservations for workers while their leader starts

Preemption:

    evicting      stop victims and hold what they free
    gang_victims  cheapest victims for several bundles at once
"""
