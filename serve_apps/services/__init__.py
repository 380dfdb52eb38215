"""Work of the routes without HTTP; the terminal calls some of it directly.

submission     stores a graph as a run                        explaining     why work waits, and dry runs
stopping       holds, drains and releases tenants             draining       drains and undrains meshes
event_stream   a run's events as they happen                  result_values  bytes of results
caching        lists and removes cached values                scheduling     creates, changes and triggers schedules
run_outputs    outputs of a run and their encodings           log_stream    what a run's nodes print, in pages or as it comes
change_listing  changes that people made, within reach
run_listing    pages of runs by filters                       change_stream  changes of all runs as they happen
"""
