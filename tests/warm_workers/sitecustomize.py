"""Start the worker processes of Ray warm; see `warm_worker`. Python imports this first, since its folder is on PYTHONPATH."""

import sys

if len(sys.orig_argv) > 1 and sys.orig_argv[1].endswith("/ray/_private/workers/default_worker.py"):
    import warm_worker

    warm_worker.start()
