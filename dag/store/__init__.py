"""Stores for runs, and the Python client.

    redis_runs       on Redis: a script for each atomic step         lua            these scripts, a file each
    memory           in one process: for tests and simulation        rows           stored form of a run, the same in both stores
    node_rows        stored form of the state of its nodes
    redis_cache      cached values on Redis                          memory_cache   the same in one process
    cached_files     files of cached values

The Python client:

    remote           submit a graph, follow its run, get its result  client_access  finds the root's address and the API key
    http_calls       HTTP calls with one pool and with retries       event_feed     a run's events as they come
    result_decoding  decodes results to values and exceptions        run_logs       what a run's nodes have printed, line by line
    client_trace     trace context of the program that submits
    script_modules   modules beside the user's script                progress_display  bars while a script waits
    schedules        `dag.schedule`: a graph by cron                 redis_schedules  schedules on Redis
    memory_schedules  the same in one process                        redis_webhooks  webhooks on Redis
    memory_webhooks  the same in one process
    usage_rows       rows of use, as the client returns them
    programs         `dag.program`: a script as a node               working_dir    zip archive of a folder, without what is ignored
"""
