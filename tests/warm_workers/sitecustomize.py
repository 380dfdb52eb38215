"""Make the processes of Ray's nodes cheap for tests. Python imports this first, since its folder is on PYTHONPATH.

Workers start warm; see `warm_worker`. The dashboard, its agents and the server of Ray's client only wait: tests do not use them.
"""

import sys

_WORKER = "/ray/_private/workers/default_worker.py"
_DASHBOARD = "/ray/dashboard/dashboard.py"
_WAITING = ("/ray/dashboard/agent.py", _DASHBOARD)
_CLIENT_SERVER = "ray.util.client.server"

_arguments = sys.orig_argv[1:4]
# A worker with a runtime environment is an argument of another program first, which prepares the environment.
if any(argument.endswith(_WORKER) for argument in _arguments[:1]):
    import warm_worker

    warm_worker.start()
elif any(argument.endswith(_WAITING) or argument == _CLIENT_SERVER for argument in _arguments):
    import idle_process

    idle_process.wait(sys.orig_argv)
