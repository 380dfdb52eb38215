"""What the scheduler's decisions look like from outside: metrics, their targets, histories. Pure; reads events and decisions.

metrics         metrics computed from events and decisions
metric_targets  the six target metrics and their targets
anomalies       metrics outside their usual band
tuning          adjust settings when targets are missed
task_history    history of each task
"""
