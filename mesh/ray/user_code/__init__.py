"""Support for tenants' code on a worker, and cleanup of the Ray resources that the code creates.

    task_context    API for a task's own code: checkpoints, progress, the request to stop
    trace_scope     trace context of the running task, for spans of its code
    bounded_pickle  pickles that outlive their process, up to a size
    interrupts      interrupts a cancelled call that is inside `time.sleep`
    output_lines    lines of a node's output: cut, counted and limited
    node_output     what a node prints, read from the worker's own log files
    output_relay    output of a runner's tasks on its way to the outbox, and the last lines of each

Ray resources that a stage's code creates are removed with the stage:

    ownership    records which stage created each actor and placement group
    dependents   computes which resources belong to ended stages
    sweep        one pass that finds and removes these resources
    collector    runs sweeps on its own thread, which may wait for Ray, until nothing is left
    ray_tables   Ray's tables of actors, placement groups and tasks
    outside      finds and ends work that holds resources outside the placement group of its stage
    gang_room    placement groups within a gang's own, for libraries that make theirs
    room         names the holders of the resources that a stage waits for
"""
