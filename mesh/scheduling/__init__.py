"""The local scheduler's core: queue, order, admit, place, preempt. Events in, decisions out; no Ray, no clock, no chance.

The whole:

    scheduler     the only writer of its state                        state       all of it, and verbs that keep ledgers in step
    events        what it is told                                     decisions   what it wants done
    settings      how it decides; may change while it runs            invariants  what must hold of the state after every step
    journal       heard and decided, as lines; and replayed           snapshot    the state as one frozen value, and back
    plain         any frozen value to plain JSON, and back exactly

Tasks:

    tasks         what is scheduled, and its states                   records     what is kept of tasks, shapes and preemptions
    task_queues   a queue per state, one way between them             queues      what waits, by priority and age
    lifecycle     ends of tasks and groups, and what follows          judging     is a request wrong in itself

Who goes where:

    admitting     one pass over the queue                             placing     who goes where now
    feasibility   which nodes could, which can; why not               candidates  nodes for one shape, scored all at once
    two_pass      Ray's schedule, and the spill-over to new nodes     seats       places that are needed at the same time
    gangs         admitted all together, or not at all                reserving   room kept for what has waited too long
    kept_places   room kept for workers while a leader starts

Who gives way:

    preemption    who may be asked, with a score for each             victims     the cheapest set for one demand
    gang_victims  the cheapest set for several seats at once          evicting    they are asked, and what they free is kept

Placement groups:

    shapes        what a group looks like, and how many a pool keeps  groups      one group: its layer, who has it, whom it serves
    group_ledger  all groups of all pools                             idle_index  which idle one fits best, which waits longest

How it does:

    explaining    why a task waits, where, for how long about         stories     what happened to each task
    metrics       figures, folded from events and decisions           figures     the six by which it is judged, and their targets
    anomalies     what leaves the band it kept to                     tuning      missed targets in, small changes out
"""
