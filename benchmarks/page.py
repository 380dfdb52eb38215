"""The browser page in Chromium, on production's gateway and a real Redis: first paint, script per frame over a large graph, a large array,
and the time from an event to the page while a thousand events a second come.

The gateway is a process of its own. Runs come through it; coordinator, stage queue and child mesh, which write the events, are those of
`control_path`. Only the host is a stand-in: it reports the ends of tasks by hand, at an even rate. The stream is that of one run, and the
page shows its graph. An event has arrived when the count in the legend includes it: its picture comes with the next frame, 16 ms later
at most on an idle machine.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.table import Table

from benchmarks.control_path import SINGLE, TENANT, ControlBed, reports_of
from federation.api_keys import Role
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from mesh.core.clock import SystemClock
from serve_apps.page_fixtures import chromium, entering, layered, running_chromium
from serve_apps.replica_fixtures import Replicas
from serve_apps.requests.auth import issue

TURNS = 9
#: Nodes of the drawn graph and of the run whose events are followed, elements of the array, lines of the list of runs.
LEVELS, PER_LEVEL, FOLLOWED, ELEMENTS, LISTED = 100, 100, 10_000, 100_000, 50
#: Events a second, and nodes of one report: each node begins and ends, so a report makes two events a node.
EVENTS_PER_S, PER_REPORT = 1_000, 10
WIDTH, HEIGHT = 1_400, 900
PAINT_MS_MAX, FRAME_MS_MAX, ARRAY_MS_MAX, EVENT_MS_MAX = 1_000, 16, 1_000, 200
WAIT_MS_MAX = 60_000
CALL = "work:one"
#: Events of a trace in which the page's script runs.
SCRIPT = frozenset({"FunctionCall", "EvaluateScript", "RunMicrotasks"})
FRAME = "FireAnimationFrame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Samples of one quantity of the page."""

    name: str
    samples: tuple[float, ...]
    goal: float | None  #: Limit on `judged`; None: only reported.
    is_p95: bool = True  #: Whether p95 is judged; else the median.
    unit: str = "ms"

    @property
    def p95(self) -> float:
        """Least sample that 95 % of the samples do not exceed."""
        ordered = sorted(self.samples)
        return ordered[-(-len(ordered) * 95 // 100) - 1]

    @property
    def judged(self) -> float:
        """Number that the goal limits."""
        return self.p95 if self.is_p95 else statistics.median(self.samples)


def measure(turns: int = TURNS) -> list[Found]:
    """Measure all quantities; none on a machine without Chromium."""
    if chromium() is None:
        return []
    with running_redis() as client, tempfile.TemporaryDirectory(prefix="sm-page-") as folder, running_chromium() as browser:
        keys = Keys()
        bed = ControlBed(client, keys)
        with closing(Replicas(Path(folder), f"unix://{client.connection_pool.connection_kwargs['path']}")) as replicas:
            replicas.start("gateway")
            key = issue(RedisKeyRing(client, keys), TENANT, SystemClock().wall_ms(), role=Role.OPERATOR)
            at = _At(browser, replicas.address, key)
            followed = _events(at, bed)  # First: no other run waits for the mesh yet.
            _submit(at, _shown())
            bed.coordinator.step(0)
            return [*_first_paint(at, turns), _frames(at, turns), *_array(at, turns), *followed]


def table(found: list[Found]) -> Table:
    """Return a table with one row per quantity."""
    title = "the browser page in Chromium" if found else "the browser page: left out, since this machine has no Chromium"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("quantity", "samples", "median", "p95", "most", "goal", "reached"):
        shown.add_column(column, justify="left" if column == "quantity" else "right")
    for one in found:
        numbers = (f"{number:,.1f} {one.unit}" for number in (statistics.median(one.samples), one.p95, max(one.samples)))
        goal = "" if one.goal is None else f"{'p95' if one.is_p95 else 'median'} {one.goal:g} {one.unit}"
        reached = "" if one.goal is None else "yes" if one.judged <= one.goal else "NO"
        shown.add_row(one.name, f"{len(one.samples):,}", *numbers, goal, reached)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    sides = {
        one.name: {"unit": one.unit, "median": statistics.median(one.samples), "p95": one.p95, "most": max(one.samples), "goal": one.goal}
        for one in found
    }
    return {"name": "page", "about": "the browser page in Chromium", "sides": sides}


@dataclass(frozen=True, slots=True)
class _At:
    """Chromium, and the root that it opens."""

    browser: Any
    address: str
    key: str

    @contextmanager
    def tab(self) -> Iterator[Any]:
        """Yield a signed-in tab without a cache; close it at the end."""
        context = self.browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        context.set_default_timeout(WAIT_MS_MAX)
        context.add_init_script(entering(self.key))
        try:
            yield context.new_page()
        finally:
            context.close()

    def http(self) -> httpx.Client:
        """Return a client with the same key."""
        return httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=WAIT_MS_MAX / 1000)


def _submit(at: _At, specs: Mapping[str, Mapping[str, Any]]) -> None:
    """Submit runs by their ids."""
    with at.http() as http:
        for run, spec in specs.items():
            answer = http.post("/v1/runs", json={**spec, "spec": "dag/1", "id": run, "tenant": TENANT})
            if answer.is_error:
                raise RuntimeError(f"the root refused {run}: {answer.text}")


def _shown() -> dict[str, dict[str, Any]]:
    """Return the runs that are looked at and do nothing."""
    chain = {"a": {"call": CALL, "args": [1]}, "b": {"call": CALL, "args": [{"$ref": "a"}]}}
    drawn = layered(LEVELS, PER_LEVEL)
    for node in drawn["nodes"].values():
        node["call"] = CALL
    array = {"all": {"call": CALL, "args": [{"$each": [1] * ELEMENTS}]}}
    listed = {f"run-{number:02}": {"nodes": chain, "outputs": {"b": {"$ref": "b"}}} for number in range(LISTED)}
    return {**listed, "drawn": drawn, "array": {"nodes": array, "outputs": {"all": {"$ref": "all"}}}}


def _fan(nodes: int) -> dict[str, Any]:
    """Return a source and nodes that read it."""
    readers = {f"work-{number:05}": {"call": CALL, "args": [{"$ref": "source"}]} for number in range(nodes - 1)}
    return {"nodes": {"source": {"call": CALL, "args": [1]}, **readers}, "outputs": {"source": {"$ref": "source"}}}


def _first_paint(at: _At, turns: int) -> list[Found]:
    painted, listed = list[float](), list[float]()
    for _ in range(turns + 1):
        with at.tab() as page:
            page.goto(f"{at.address}/#/runs")
            page.wait_for_selector("table.runs tbody tr")
            listed.append(page.evaluate("performance.now()"))
            painted.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    return [
        Found(name="first paint", samples=tuple(painted[1:]), goal=PAINT_MS_MAX, is_p95=False),
        Found(name=f"list of {LISTED} runs", samples=tuple(listed[1:]), goal=None),
    ]


def _frames(at: _At, turns: int) -> Found:
    """Pan and zoom the drawn graph, from the whole to single edges and back."""
    samples = list[float]()
    with at.tab() as page:
        page.goto(f"{at.address}/#/runs/drawn")
        box = _canvas(page)
        for turn in range(turns + 1):
            at.browser.start_tracing(page=page, categories=["devtools.timeline"])
            _pan_and_zoom(page, box)
            found = script_per_frame(json.loads(at.browser.stop_tracing())["traceEvents"])
            samples += found if turn else ()
    return Found(name=f"script a frame, {LEVELS * PER_LEVEL:,} nodes", samples=tuple(samples), goal=FRAME_MS_MAX)


def _canvas(page: Any) -> Mapping[str, float]:
    page.wait_for_selector(".canvas-frame[data-ready=true]")
    box: Mapping[str, float] = page.get_by_role("application").bounding_box()
    return box


def _pan_and_zoom(page: Any, box: Mapping[str, float]) -> None:
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    for wheel in (-120, 120):
        for _ in range(12):
            page.mouse.wheel(0, wheel)
        page.mouse.down()
        for step in range(40):
            page.mouse.move(x + 6 * (step % 20), y + 4 * (step % 20))
        page.mouse.up()
    page.keyboard.press("0")


def script_per_frame(trace: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the milliseconds of script in each frame of the page that asked for one: from a frame's callbacks to the next one's.

    The time is that of the processor, so other programs of the machine do not count.

    Args:
        trace: Events of Chromium's category `devtools.timeline`.
    """
    whole = [event for event in trace if event.get("ph") == "X"]
    frames = sorted((event["ts"], (event["pid"], event["tid"])) for event in whole if event["name"] == FRAME)
    if not frames:
        return []
    places = [place for _, place in frames]
    thread = max(set(places), key=places.count)
    starts = [ts for ts, place in frames if place == thread]
    sums = [0.0] * len(starts)
    for event in _outermost(event for event in whole if event["name"] in SCRIPT and (event["pid"], event["tid"]) == thread):
        frame = bisect_right(starts, event["ts"]) - 1
        if frame >= 0:
            sums[frame] += event.get("tdur", event.get("dur", 0)) / 1000
    return sums


def _outermost(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the events of one thread that lie in no other one, in their order."""
    over = 0.0
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0))):
        if event["ts"] >= over:
            over = event["ts"] + event.get("dur", 0)
            yield event


def _array(at: _At, turns: int) -> list[Found]:
    opened, listed = list[float](), list[float]()
    for _ in range(turns + 1):
        with at.tab() as page:
            page.goto(f"{at.address}/#/runs/array?node=all")
            page.wait_for_selector(f"#node-panel >> text=of {ELEMENTS:,} elements")
            opened.append(page.evaluate("performance.now()"))
            listed.append(_took(page, lambda page=page: _list_elements(page)))
    return [
        Found(name=f"array of {ELEMENTS:,} opened", samples=tuple(opened[1:]), goal=ARRAY_MS_MAX, is_p95=False),
        Found(name="its elements listed", samples=tuple(listed[1:]), goal=None),
    ]


def _list_elements(page: Any) -> None:
    states = page.get_by_label("Elements by state")
    states.select_option(index=1)
    page.wait_for_selector("#node-panel .lines-of li")


def _took(page: Any, act: Callable[[], None]) -> float:
    begun: float = page.evaluate("performance.now()")
    act()
    ended: float = page.evaluate("performance.now()")
    return ended - begun


#: Notes each count of succeeded nodes that the legend shows, and when.
_WATCH = """() => {
    const legend = document.querySelector('[aria-label="Nodes by state"]');
    window.seen = [];
    const look = () => {
        const item = [...legend.children].find((each) => each.textContent.includes("succeeded"));
        const count = item ? Number(item.querySelector("b").textContent.replaceAll(",", "")) : 0;
        if (count !== window.seen.at(-1)?.[1]) window.seen.push([Date.now(), count]);
    };
    new MutationObserver(look).observe(legend, { subtree: true, childList: true, characterData: true });
}"""


def _events(at: _At, bed: ControlBed) -> list[Found]:
    _submit(at, {"followed": _fan(FOLLOWED)})
    bed.coordinator.step(0)
    bed.notified()
    with at.tab() as page:
        page.goto(f"{at.address}/#/runs/followed")
        _canvas(page)
        page.evaluate(_WATCH)
        sent, seconds = _write(bed)
        page.wait_for_selector(f'[aria-label="Nodes by state"] >> text=succeeded {FOLLOWED:,}')
        seen = page.evaluate("window.seen")
    counts = [count for _, count in seen]
    arrived = [seen[bisect_left(counts, number)][0] - at_ms for number, at_ms in enumerate(sent, start=1)]
    return [
        Found(name="event to page", samples=tuple(arrived), goal=EVENT_MS_MAX),
        Found(name="events written", samples=(2 * len(sent) / seconds,), goal=None, unit="/s"),
    ]


def _write(bed: ControlBed) -> tuple[list[float], float]:
    """Report the ends of all nodes at an even rate; return when the report of each was made, and the seconds of all."""
    sent = list[float]()
    begun_s = time.monotonic()
    while bed.host.given:
        for report in reports_of(bed.host.given.pop(0), SINGLE, PER_REPORT):
            due_s = begun_s + 2 * len(sent) / EVENTS_PER_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            at_ms = time.time_ns() / 1e6
            bed.child.take_report(report)
            bed.coordinator.step(0)
            sent += [at_ms] * (len(report.messages) // 2)
        bed.notified()
    return sent, time.monotonic() - begun_s
