"""Atomic steps of a run on Redis: a script for each verb, called by `dag.store.redis_runs`.

    create       a new run, with its blobs and inbox entry      commit          one step of a run, if its version is unchanged
    settle       marks an ended run as fully carried out        request_cancel  cancels a run, unless it has ended
    send_signal  keeps a signal for the nodes that wait for it
    drop_dead    removes dead letters                           retire          removes an ended run with all its data

Of cached values, called by `dag.store.redis_cache`:

    cache_look     finds a value, or claims its key             cache_keep      stores a value and ends the claim
    cache_release  ends a claim without a value                 cache_drop      removes an expired value

Of schedules, called by `dag.store.redis_schedules`:

    schedule_put   a schedule's next version, within limits   schedule_drop   removes a schedule

Parts that several verbs need:

    lib_keys     names for the keys                             lib_schema      refuses data of another schema
    lib_full     how a verb passes on a server that is full     lib_sections    lists of unknown length among arguments
    lib_backlog  open runs of tenants and of their ancestors    lib_cache       removes entries, ends claims
    lib_feed     the feed of changes of all runs
"""
