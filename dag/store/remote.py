"""The Python client: submit a graph to a running federation, follow the run, get its result.

A request may be repeated without harm (every submission has an id, made here when the user gives none), so lost
connections and a root that is just being replaced are met by asking again, for a bounded time. The tenant's own pickles
are read here, in the user's process, and nowhere before; their hashes are checked first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import cloudpickle
import httpx
import httpx_sse
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dag.compiling import compile_graph
from dag.errors import ApiError, ResultTimeout, RunCancelled, RunConflict, RunFailed, UnknownRun
from dag.runs import RunEvent
from dag.states import RUN_ENDS, RunState
from dag.tasks import Node
from mesh.clock import Clock, SystemClock
from mesh.errors import RuntimeDoorError
from mesh.ids import RunId
from mesh.values import Encoding
from mesh.wire import decode
