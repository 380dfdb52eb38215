"""Answers: what a route does or finds out, beside HTTP; the terminal does some of it by itself.

submission     a graph on its way to a run                    explaining     why does it wait, and what if
stopping       holding, draining and releasing tenants        draining       taking a mesh out of use and back
event_stream   a run's events as they happen                  result_values  the bytes of results
run_outputs    the outputs of a run, and how each is told
"""
