"""Users' plugins for the scheduler, fenced: their own `score()`, `priority()` and `preemption_policy()`.

A plugin is a user's code on the scheduler's only thread. Each call of a hook is checked: it may not raise, must return a valid
answer, and must stay within its budget. The first call that fails fences the hook off: the hook is not called again, the default
replaces it (for that call too), and the scheduler gets a `PluginFenced` to report.

The budget is measured after the call, by the clock that is passed in. A Python plugin that never returns stops the scheduler, since
nothing in one process can end a running Python function safely. A WebAssembly plugin is ended by its fuel (`mesh.ray.plugins.wasm`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import LabelName, PoolName, TaskId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import MeshError
from mesh.policies.hybrid import HYBRID
from mesh.policies.policy import Draw, FloatArray, NodeDemand, NodeScoringView, Policy, Score, highest

#: Limit for one call of a hook; a longer call fences the hook off.
BUDGET_MS = 50.0
#: Hooks of a plugin.
HOOKS = ("score", "priority", "preemption_policy")
#: Suffixes of files with WebAssembly; any other source names Python.
WASM_SUFFIXES = (".wasm", ".wat")
#: `now_ms()`: a monotonic clock.
Clock = Callable[[], float]

Answer = TypeVar("Answer")


class PluginError(MeshError):
    """A plugin cannot be loaded, or conflicts with another one; the message names it and the remedy."""


class GarbageAnswer(MeshError):
    """A hook returned an invalid answer; kept as the reason of its fence, never raised to a caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Facts on a waiting task, for `priority()`."""

    task: TaskId
    pool: PoolName
    label: LabelName = LabelName("")  # noqa: RUF009  a NewType is its argument; nothing is shared
    tenant: TenantPath = TenantPath("")  # noqa: RUF009  the same
    priority: float  #: P_base, as set by the user.
    resources: ResourceSet = NOTHING
    workload_type: str = ""
    role: str = ""
    estimated_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFacts:
    """Facts on a preemption candidate, for `preemption_policy()`."""

    task: TaskId
    pool: PoolName
    label: LabelName = LabelName("")  # noqa: RUF009  a NewType is its argument; nothing is shared
    tenant: TenantPath = TenantPath("")  # noqa: RUF009  the same
    priority: float
    priority_delta: float  #: How much more urgent the preemptor is; above zero.
    resources: ResourceSet = NOTHING
    ran_ms: int
    lost_ms: int  #: Work since its state was last saved.
    remaining_ms: int | None = None  #: None: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFenced:
    """A hook of a plugin is fenced off: the default replaces it."""

    plugin: str
    hook: str  #: `score`, `priority` or `preemption_policy`.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Hooks of one plugin; a hook that it lacks is None."""

    name: str
    score: Score | None = None  #: Scores each row of the view [n]; -inf excludes the row. The best row is chosen.
    priority: Callable[[TaskFacts], float] | None = None  #: Replaces P_base; aging and P_label are added as usual.
    preemption_policy: Callable[[CandidateFacts], float | None] | None = None  #: Replaces the preempt score; None excludes the candidate.


def check_source(name: str, source: str) -> None:
    """Check the form of a plugin's source: `module:attribute`, or the path of a WebAssembly file.

    Raises:
        PluginError: It has another form.
    """
    module, colon, attribute = source.partition(":")
    if not source.endswith(WASM_SUFFIXES) and not (module and colon and attribute):
        raise PluginError(f"plugin {name}: {source!r} is neither module:attribute nor the path of a .wasm or .wat file")


class Fenced(Generic[Answer]):
    """One hook of one plugin behind its fence."""

    def __init__(
        self,
        plugin: str,
        hook: str,
        *,
        budget_ms: float,
        now_ms: Clock,
        send: Callable[[PluginFenced], None],
    ) -> None:
        self.plugin = plugin
        self.hook = hook
        self.is_off = False
        self.why = ""  #: Why the hook is fenced off; empty while it is not.
        self._budget_ms = budget_ms
        self._now_ms = now_ms
        self._send = send

    def ask(self, call: Callable[[], object], checked: Callable[[object], Answer], default: Callable[[], Answer]) -> Answer:
        """Return the plugin's answer, or the default's once the hook is off; `checked` raises `GarbageAnswer` for an invalid answer."""
        if self.is_off:
            return default()
        began_ms = self._now_ms()
        try:
            answer = checked(call())
        except GarbageAnswer as garbage:
            return self._off(str(garbage), default)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever strangers' code raises stays behind the fence
            described = str(error).strip().partition("\n")[0]
            return self._off(f"raised {type(error).__name__}: {described}" if described else f"raised {type(error).__name__}", default)
        took_ms = self._now_ms() - began_ms
        if took_ms > self._budget_ms:
            return self._off(f"took {took_ms:.0f} ms of {self._budget_ms:.0f}", default)
        return answer

    def _off(self, why: str, default: Callable[[], Answer]) -> Answer:
        self.is_off, self.why = True, why
        self._send(PluginFenced(plugin=self.plugin, hook=self.hook, why=why))
        return default()


class Plugins:
    """All plugins of one mesh. Several may score; at most one sets priorities, and at most one scores preemption candidates."""

    def __init__(self, plugins: Iterable[Plugin], *, now_ms: Clock, budget_ms: float = BUDGET_MS, default: Policy = HYBRID) -> None:
        """Fence each hook of the plugins; `default` scores for a plugin that is fenced off.

        Raises:
            PluginError: Two plugins have one name, or both have a hook that only one may have.
        """
        self._newly_fenced: list[PluginFenced] = []
        self._fences: dict[tuple[str, str], Fenced[Any]] = {}  #: By plugin and hook.
        self._plugins = tuple(plugins)
        self._default = default
        self._budget_ms = budget_ms
        self._now_ms = now_ms
        names = [plugin.name for plugin in self._plugins]
        if len(set(names)) < len(names):
            raise PluginError(f"two plugins have one name among {', '.join(sorted(names))}; rename one of them")
        self._order = self._only("priority")
        self._judge = self._only("preemption_policy")
        self._order_fence: Fenced[float] = self._fenced(self._order, "priority")
        self._judge_fence: Fenced[float | None] = self._fenced(self._judge, "preemption_policy")
        self.policies: Mapping[str, Policy] = {
            plugin.name: self._policy(plugin, plugin.score) for plugin in self._plugins if plugin.score is not None
        }  #: Scores by name, for a `Catalogue`.

    def priority(self, facts: TaskFacts) -> float:
        """Return P_base of the task from the plugin, or the user's own without a plugin."""
        order = self._order.priority if self._order is not None else None
        if order is None:
            return facts.priority
        return self._order_fence.ask(lambda: order(facts), _number, lambda: facts.priority)

    def preempt_score(self, facts: CandidateFacts, usual: float) -> float | None:
        """Return the preempt score of the candidate from the plugin, or `usual` without one; None excludes the candidate."""
        judge = self._judge.preemption_policy if self._judge is not None else None
        if judge is None:
            return usual
        return self._judge_fence.ask(lambda: judge(facts), _number_or_none, lambda: usual)

    @property
    def hooks(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of each plugin's hooks, fenced off or not."""
        return {one.name: tuple(hook for hook in HOOKS if getattr(one, hook) is not None) for one in self._plugins}

    @property
    def fenced(self) -> tuple[PluginFenced, ...]:
        """Return the hooks that are fenced off."""
        off = [(key, fence.why) for key, fence in self._fences.items() if fence.is_off]
        return tuple(PluginFenced(plugin=plugin, hook=hook, why=why) for (plugin, hook), why in off)

    def set_fenced(self, hooks: Iterable[PluginFenced]) -> None:
        """Restore which hooks are fenced off, all others excluded; `take_fenced` does not report them."""
        off = {(one.plugin, one.hook): one.why for one in hooks}
        for key, fence in self._fences.items():
            fence.is_off, fence.why = key in off, off.get(key, "")

    def take_fenced(self) -> tuple[PluginFenced, ...]:
        """Return the hooks fenced off since the last call. Cached scores must be computed again then."""
        fenced = tuple(self._newly_fenced)
        self._newly_fenced.clear()
        return fenced

    def _only(self, hook: str) -> Plugin | None:
        having = [plugin for plugin in self._plugins if getattr(plugin, hook) is not None]
        if len(having) > 1:
            names = " and ".join(plugin.name for plugin in having)
            raise PluginError(f"{names} both have {hook}(), and a mesh has one; load one of them, or one without it")
        return having[0] if having else None

    def _fenced(self, plugin: Plugin | None, hook: str) -> Fenced[Answer]:
        name = plugin.name if plugin is not None else ""
        fence: Fenced[Answer] = Fenced(name, hook, budget_ms=self._budget_ms, now_ms=self._now_ms, send=self._newly_fenced.append)
        if plugin is not None:
            self._fences[name, hook] = fence
        return fence

    def _policy(self, plugin: Plugin, score: Score) -> Policy:
        fence: Fenced[FloatArray] = self._fenced(plugin, "score")
        default = self._default

        def fenced_score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
            return fence.ask(
                lambda: score(demand, _locked(view)), lambda answer: _scores(answer, len(view.total)), lambda: default.score(demand, view)
            )

        def fenced_pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:
            return default.pick(scores, demand, draw) if fence.is_off else highest(scores, demand, draw)

        def fenced_summand(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
            rows = len(view.total)  # Without the plugin, the other policies of the sum decide.
            return fence.ask(lambda: score(demand, _locked(view)), lambda answer: _cut(_scores(answer, rows)), lambda: np.zeros(rows))

        return Policy(plugin.name, fenced_score, fenced_pick, summand=fenced_summand, version=lambda: int(fence.is_off))


def _locked(view: NodeScoringView) -> NodeScoringView:
    """Return a read-only view of the rows, so a plugin cannot write by mistake into the scheduler's own ledger."""
    locked = {name: getattr(view, name).view() for name in ("total", "free", "busy", "load", "local_bytes", "of_job", "is_named")}
    for array in locked.values():
        array.flags.writeable = False
    return replace(view, **locked)


def _scores(answer: object, rows: int) -> FloatArray:
    try:
        scores = np.array(answer, dtype=np.float64)  # A copy: the plugin may keep its array and write into it later.
    except (TypeError, ValueError):
        raise GarbageAnswer(f"answered {type(answer).__name__}, which is not one number per node") from None
    if scores.shape != (rows,):
        raise GarbageAnswer(f"answered an array of shape {list(scores.shape)} for {counted(rows, 'node')}; one number per node is needed")
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise GarbageAnswer("answered NaN or infinity; a score is a number, or -inf to exclude a node")
    return scores


def _cut(scores: FloatArray) -> FloatArray:
    """Return the scores from 0 to 1; -inf stays."""
    cut: FloatArray = np.where(scores == -np.inf, -np.inf, np.clip(scores, 0.0, 1.0))
    return cut


def _number(answer: object) -> float:
    if isinstance(answer, bool) or not isinstance(answer, (int, float, np.floating, np.integer)) or not math.isfinite(answer):
        raise GarbageAnswer(f"answered {answer!r:.80}; a finite number is needed")
    return float(answer)


def _number_or_none(answer: object) -> float | None:
    return None if answer is None else _number(answer)
