"""Processes that run the tenant's code: worker actors that are fed in chunks, and Ray tasks of their own.

node_worker   actor of a slot that runs chunks of tasks
chunk_calls   messages between runner and worker about a chunk
chunk_values  arguments of the tasks of a chunk
page          bytes by which others learn what a dead worker ran, and ask one to stop
execution     execution of a task: arguments, call, report
plain_calls   async functions and generators as plain functions
group_host    an actor group as a node: makes its members, sends their calls
job_host      a job as a node: starts, restarts and ends its members
job_member    a member of a job, in a process of its own
elements      elements of a part of an array
streaming     elements of a generator that are handed out while it goes on
present_task  the task that a process runs: its start, checkpoints and progress
exporting     values out of a mesh, and into another
watch_folder  file per process, through which the watchdog of its node finds it
"""
