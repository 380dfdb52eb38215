"""Catalogue of node policies: built-in ones, combinations of them, and users' own.

A combination adds the scores of several policies: `least_busy+binpack`, or with weights, `0.7*least_busy+0.3*binpack`. Each score is
first normalised to 0 to 1; the score of a plugin is cut to that. Policies that do not pick the highest score (`hybrid`, `random`,
`power_of_two`, `locality`, `node_affinity`) cannot be combined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from mesh.core.near_names import nearest
from mesh.errors import MeshError
from mesh.policies.binpack import BINPACK
from mesh.policies.gang import GANG
from mesh.policies.hybrid import HYBRID
from mesh.policies.job_affinity import JOB_AFFINITY
from mesh.policies.job_anti_affinity import JOB_ANTI_AFFINITY
from mesh.policies.leader_first import LEADER_FIRST
from mesh.policies.least_busy import LEAST_BUSY
from mesh.policies.locality import LOCALITY
from mesh.policies.min_fragment import MIN_FRAGMENT
from mesh.policies.node_affinity import NODE_AFFINITY
from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy, highest
from mesh.policies.power_of_two import POWER_OF_TWO
from mesh.policies.priority import PRIORITY
from mesh.policies.random_node import RANDOM
from mesh.policies.spread import SPREAD
from mesh.policies.weighted import WEIGHTED

_BUILT_IN = (
    *(BINPACK, GANG, HYBRID, JOB_AFFINITY, JOB_ANTI_AFFINITY, LEADER_FIRST, LEAST_BUSY, LOCALITY, MIN_FRAGMENT, NODE_AFFINITY),
    *(POWER_OF_TWO, PRIORITY, RANDOM, SPREAD, WEIGHTED),
)
#: Built-in policies by name.
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _BUILT_IN})
#: Aliases: Ray's names, TY-Arranger's, and older ones.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "binpacking": "binpack",
        "DEFAULT": "hybrid",
        "SPREAD": "spread",
        "Gang": "gang",
        "BinPack": "binpack",
        "LeaderFirst": "leader_first",
        "MinFragment": "min_fragment",
        "JobAffinity": "job_affinity",
        "JobAntiAffinity": "job_anti_affinity",
    }
)
_NOTHING_ADDED: Mapping[str, Policy] = MappingProxyType({})


class UnknownPolicy(MeshError, ValueError):
    """No policy has this name, or it cannot be combined; the message lists the known ones."""


def node_policy(name: str) -> Policy:
    """Return the built-in policy, or combination of them, with this name.

    Raises:
        UnknownPolicy: There is none.
    """
    return BUILT_INS.policy(name)


def chosen(named: str, usual: str, *, has_local_bytes: bool) -> str:
    """Return the policy that places a task: the one it names, else its pool's.

    A task with local arguments uses `locality`, unless the task names a policy or its pool uses one other than Ray's or this mesh's
    default.
    """
    if named:
        return named
    return LOCALITY.name if has_local_bytes and ALIASES.get(usual, usual) in _USUAL else usual


class Catalogue:
    """Built-in and `added` policies; added ones must not use a built-in name."""

    def __init__(self, added: Mapping[str, Policy] = _NOTHING_ADDED) -> None:
        """Create the catalogue.

        Raises:
            UnknownPolicy: An added name is taken, or reads as a combination.
        """
        for name in added:
            if not is_free_name(name):
                raise UnknownPolicy(f"policy name {name!r} is empty, taken, or contains + or *; choose another name")
        self._policies = {**POLICIES, **added}
        self.policy: Callable[[str], Policy] = lru_cache(maxsize=256)(self._policy)  #: By name, alias or combination.

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names without aliases, sorted."""
        return tuple(sorted(self._policies))

    def _policy(self, name: str) -> Policy:
        found = self._policies.get(ALIASES.get(name, name))
        if found is not None:
            return found
        if "+" in name or "*" in name:
            return self._combined(name)
        near = nearest(name, (*self._policies, *ALIASES))
        raise UnknownPolicy(f"there is no policy {name!r}{near}; policies: {', '.join(self.names)}, and sums like least_busy+binpack")

    def _combined(self, name: str) -> Policy:
        parts = [self._part(*part, name) for part in parts_of(name)]
        total = sum(weight for weight, _ in parts)
        scores = [(weight / total, policy.summand or policy.score) for weight, policy in parts]
        versions = [policy.version for _, policy in parts if policy.version is not None]

        def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
            summed = scores[0][0] * scores[0][1](demand, view)
            for weight, part in scores[1:]:
                summed += weight * part(demand, view)
            return summed

        return Policy(name, score, version=(lambda: sum(version() for version in versions)) if versions else None)

    def _part(self, weight: str | None, name: str, whole: str) -> tuple[float, Policy]:
        found = self._policies.get(ALIASES.get(name, name))
        if found is None or not _is_summand(found):
            able = [known for known in self.names if _is_summand(self._policies[known])]
            near = nearest(name, able) if found is None else ""
            raise UnknownPolicy(f"{whole!r}: policy {name!r} cannot be combined{near}; these can: {', '.join(able)}")
        try:
            factor = float(weight) if weight is not None else 1.0
        except ValueError:
            factor = math.nan
        if not (0.0 < factor < math.inf):
            raise UnknownPolicy(f"{whole!r}: weight {weight!r} must be a positive number, as in 0.7*least_busy+0.3*binpack")
        return factor, found


def _is_summand(policy: Policy) -> bool:
    return policy.summand is not None or (policy.pick is highest and policy.settle is None)


def parts_of(name: str) -> list[tuple[str | None, str]]:
    """Return weight and name of each policy in a combination; a single policy is its only part."""
    split = [part.rpartition("*") for part in name.split("+")]
    return [(weight.strip() if star else None, policy.strip()) for weight, star, policy in split]


def is_free_name(name: str) -> bool:
    """Return whether a plugin may have this name."""
    return bool(name) and name not in POLICIES and name not in ALIASES and not set(name) & set("+*")


def with_plugins(names: Iterable[str]) -> Catalogue:
    """Return a catalogue that knows these plugins by name only, to check policies before the plugins are loaded.

    Raises:
        UnknownPolicy: A name is taken, or reads as a combination.
    """
    return Catalogue({name: Policy(name, _flat, summand=_flat) for name in names})


def _flat(_: NodeDemand, view: NodeScoringView) -> FloatArray:
    return np.zeros(len(view.total))


_USUAL = frozenset({HYBRID.name, WEIGHTED.name})
BUILT_INS = Catalogue()
