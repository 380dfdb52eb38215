"""The federation that `up` starts without a file and `init` writes: one tenant and one mesh on the cores of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from federation.config.loading import FederationConfig
from serve_apps.configuration.config_file import config_in

#: Name of the file that `init` writes, and that `up` reads without an argument.
INITIAL_FILE = Path("schedulemesh.yaml")
GIB = 1 << 30
_TEXT = """\
# A federation for one machine and one team. `schedulemesh up` starts it, `schedulemesh validate` checks it.
# docs/configuration.md lists every key.

federation:
  name: default         # a state folder belongs to one federation, by this name

redis: {url: null}      # null: an embedded server, with its file in the state folder
storage: {url: null}    # null: a folder in the state folder
root: {cluster: local, host: 127.0.0.1, port: 8000, gateways: 1}   # a taken port: the next free one

import_paths: ["."]     # folders of the modules that JSON specs name, seen from this file

# The root and the tenant share one Ray cluster: any task could run code in the control plane. docs/security.md shows how to part them.
clusters:
  local:
    shared: true
    object_store: 200MiB
    nodes:
      - {cpu: CORES}    # the cores of this machine

flavors:
  standard: {description: Ordinary CPUs and memory.}

meshes:
  local:
    cluster: local
    pools: {general: {flavor: standard, capacity: {cpu: CORES, memory: MEMORY}}}   # half of the memory of this machine

# Tenants below this one share its quota: add them under the key `tenants` of `default`.
tenants:
  default:
    quotas: {standard: {cpu: {nominal: CORES}, memory: {nominal: MEMORY}}}
    functions: ["*:*"]  # functions that JSON specs may name
    pickled_code: true  # functions that Python clients send
"""


def initial_text(*, cores: int, memory_bytes: int) -> str:
    """Return the commented file for a machine of this size."""
    return _TEXT.replace("CORES", str(max(1, cores))).replace("MEMORY", f"{max(1, memory_bytes // 2 // GIB)}GiB")


def initial_text_here() -> str:
    """Return the commented file for this machine."""
    return initial_text(cores=os.cpu_count() or 1, memory_bytes=psutil.virtual_memory().total)


def initial_config() -> FederationConfig:
    """Return the configuration that the file of `initial_text_here` would have in the current folder."""
    return config_in(initial_text_here(), source=str(INITIAL_FILE), folder=Path.cwd())
