"""Conformance cases in JSON, run against the core: `python -m mesh.conformance FILE.json`.

    __main__     the command                                program    read files, judge cases, print results
    case_runner  from a file's text to a verdict per case   kinds      kinds of cases, with their runners
    answering    steps of a case, with errors as answers    fields     checked access to the keys of a JSON object
    node_tables  nodes as written in a case

Kinds of cases by module:

    quantities   `amount`, `resource_set`                   selectors  `selector`
    instances    `instances`                                nodes      `nodes`
    ledgers      `pool`, `group_pool`                       queues     `queue`, `task_states`
    placements   `feasibility`, `two_pass`, `spill_over`    policies   `policy`, `gang`, `fragmentation`
    preemption   `preemption`                               jobs       `job`, `job_round`, `drf`
"""
