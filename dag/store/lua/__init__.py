"""What must be whole about a run on Redis: a script for each verb, called by `dag.store.redis_runs`.

    create       a new run, with its blobs, and word of it      commit          one step of a run, if nobody wrote meanwhile
    settle       an ended run that nobody has to look at again  request_cancel  a wish to stop, unless the run has ended
    drop_dead    dead letters, taken away                       retire          an ended run and all of it, removed

Parts that several verbs need:

    lib_keys     names for the keys                             lib_schema      data of another schema are left alone
    lib_full     how a verb passes on a server that is full     lib_sections    lists of unknown length among arguments
    lib_backlog  what tenants have open, and all above them
"""
