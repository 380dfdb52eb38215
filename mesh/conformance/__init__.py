"""Cases that others made, run against the core: `python -m mesh.conformance FILE.json`.

    __main__     the command                                program    read, judge, a line for each case, a sum
    judging      a file's text to a verdict on each case    kinds      which kinds there are, and what runs each
    answering    one step of a case, and errors as answers  fields     keys of a stranger's JSON, taken by name
    node_tables  nodes as a case writes them

Kinds of cases, by what they are about:

    quantities   `amount`, `resource_set`                   selectors  `selector`
    instances    `instances`                                nodes      `nodes`
    ledgers      `pool`, `group_pool`                       queues     `queue`, `task_states`
    placements   `feasibility`, `two_pass`, `spill_over`    policies   `policy`, `gang`, `fragmentation`
    preemption   `preemption`                               jobs       `job`, `job_round`, `drf`
"""
