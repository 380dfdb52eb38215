"""Where runs are kept, and how a client reaches them.

    redis_runs       on Redis: a script for what must be whole       lua            these scripts, a file each
    memory           in one process: for tests and simulation        rows           what a run is kept as, the same bytes in both

The Python client:

    remote           submit a graph, follow its run, get its result  client_access  where the root is, and the key to it
    http_calls       one pool; asked again while nobody answers      event_feed     a run's events as they come
    result_decoding  what the root told, back to values
"""
