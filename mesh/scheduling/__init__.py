"""The local scheduler's core: queue, order, admit, place, preempt. Pure: events in, decisions out; no Ray, no clock, no randomness.

State and steps:

    scheduler     the only writer of the state                        state       the whole state, with methods that keep ledgers
    consistent
    events        inputs of the scheduler                             decisions   outputs of the scheduler
    settings      settings that may change while it runs              invariants  conditions that hold after every step
    journal       events and decisions as JSON lines, and replay      snapshot    the state as one frozen value, and back
    json_codec    lossless codec between frozen values and JSON

Tasks:

    tasks         requests and states of tasks                        records     records of tasks, shapes and preemptions
    task_queues   one queue per state, one transition function        queues      pending tasks by priority and age
    lifecycle     ends of tasks and groups, and their effects         request_validation  validation of a single request

Placement:

    admitting     one pass over the queue                             placing     choice of node or group for one task
    feasibility   feasible and available nodes, with reasons          candidates  nodes scored for one shape
    two_pass      Ray's two-pass schedule, with spill-over            gang_placement  joint placement of several bundles
    gangs         all-or-nothing admission of gangs                   reserving   reservations for tasks that waited too long
    placement_reservations  reservations for workers while their leader starts

Preemption:

    preemption    eligible candidates and their scores                victims     cheapest victims for one demand
    gang_victims  cheapest victims for several bundles at once        evicting    stop victims and hold what they free

Placement groups:

    shapes        shapes of groups, group settings of a pool          groups      one group: layer, holder, shapes it serves
    group_ledger  all groups of all pools                             idle_index  idle groups by fit and by age

Observability:

    explaining    why, where and how long a task waits                task_history  history of each task
    metrics       metrics computed from events and decisions          metric_targets  the six target metrics and their targets
    anomalies     metrics outside their usual band                    tuning      adjust settings when targets are missed
"""
