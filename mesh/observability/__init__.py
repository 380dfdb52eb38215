"""Metrics, their targets and histories, computed from the scheduler's events and decisions; contexts of traces. Pure.

metrics         metrics computed from events and decisions
metric_targets  the six target metrics and their targets
anomalies       metrics outside their usual band
tuning          adjust settings when targets are missed
task_history    history of each task
trace_context   ids of the spans of a run, and its trace id in the log
"""
