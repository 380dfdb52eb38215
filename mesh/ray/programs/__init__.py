"""Programs as nodes: a command with its working directory, as a process group of its own under a worker.

program      the worker's part: unpack the working directory, start the guard, wait, stop
guard        the process between worker and program; all that the program starts ends with it
driver       the program's own driver in Ray: in the placement group of its node
"""
