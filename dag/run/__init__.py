"""The run machine: events in, decisions out. `machine` hands each event to one module; all of them write through `StateWriter`.

The run as values:

    runs          the records of a run, and the port of their store
    node_table    the state of its nodes, in columns
    node_facts    these columns, values that nodes share, and what few nodes have
    run_events    its events, and ranges of them
    dead_letters  nodes that failed for good, kept for an operator
    array_states  arrays as users see them, from the states of their parts
    states        states and transitions of runs, stages and nodes
    events        inputs of the run machine
    stages        the parts that go to meshes, by (mesh, level)
    retrying      which failures are tried again, and when

The steps:

    machine         events in, decisions out; the only writer of a run
    state_writer    checks, counts and records every transition; sends each input to a stage once
    run_status      questions about a run; changes nothing
    control         decides branches, cleanup, sleeps and signals
    caching         looks cached nodes up, and gives their values to the cache
    placing         makes stages of the answers of routing
    stage_dispatch  chooses the stages to send now, and writes them for their mesh
    reports         handles the messages of meshes
    attempts        retries a failed or lost node, or fails it
    timers          times at which a node needs a step
    timeouts        time limits of nodes and of the run
    losses          recomputes needed values after a lost runner
    recalls         takes nodes out of their stages
    withdrawals     takes back stages that no mesh has begun
    completion      ends nodes and the run, skips dependents
"""
