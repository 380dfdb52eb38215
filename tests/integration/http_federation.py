"""A federation with a mesh over HTTP, and room on its cluster for meshes that join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from federation.config.loading import load_config
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

REPOSITORY = Path(__file__).parents[2]
#: `east` has 4 CPUs on two nodes of 2, over HTTP; `west` has one node of 2. No mesh of the file uses the node of 3.
CONFIG = f"""
federation: {{name: tests, lease_ttl: 20s, heartbeat: 500ms, lease_grace: 1s, inline_limit: 4KiB}}
root: {{cluster: local, port: 18100}}
import_paths: ["{REPOSITORY}"]
clusters:
  local:
    shared: true
    object_store: 120MiB
    nodes:
      - {{cpu: 2, labels: {{zone: east}}}}
      - {{cpu: 2, labels: {{zone: east}}}}
      - {{cpu: 2, labels: {{zone: west}}}}
      - {{cpu: 3, labels: {{zone: far}}}}
flavors: {{standard: {{}}}}
meshes:
  east:
    cluster: local
    link: http
    labels: {{zone: east}}
    node_labels: {{zone: east}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 4}}}}}}
  west:
    cluster: local
    labels: {{zone: west}}
    node_labels: {{zone: west}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2}}}}}}
  guest:
    link: joins
    labels: {{zone: far}}
    preemption: {{per_minute_max: 7}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 1}}}}}}
tenants:
  acme:
    quotas: {{standard: {{cpu: {{nominal: 8}}}}}}
    functions: ["examples.*:*"]
    pickled_code: true
"""


@contextmanager
def running_stack(folder: Path) -> Iterator[Stack]:
    """Run the federation. Nobody watches it: a test that ends a process calls `watch`."""
    with StackFolder(folder) as owned:
        stack = Stack(load_config(CONFIG, source="tests/integration/http_federation.py"), owned, say=lambda _: None)
        stack.start()
        yield stack
        stack.stop()
