"""Plugins from packages, modules and files."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mesh.plugins import Plugin, PluginError
from mesh.policies.catalogue import POLICIES
from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView
from mesh.ray.plugins import plugin_loading
from mesh.ray.plugins.plugin_loading import load_plugin, load_plugins


def flat(_: NodeDemand, view: NodeScoringView) -> FloatArray:
    return np.zeros(len(view.total))


class Orders:
    def priority(self, facts: object) -> float:
        return 1.0 if facts else 0.0


class Awkward:
    def __init__(self, needed: int) -> None:
        self.needed = needed


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own_plugins")
    vars(module).update(flat=flat, Orders=Orders, orders=Orders(), Awkward=Awkward, number=7, policy=POLICIES["spread"])
    module.plugin = Plugin(name="another name", score=flat)
    module.hybrid = POLICIES["hybrid"]
    monkeypatch.setitem(sys.modules, "own_plugins", module)
    return module


@pytest.mark.parametrize(
    ("attribute", "hooks"),
    [
        pytest.param("flat", {"score"}, id="a function is its score"),
        pytest.param("Orders", {"priority"}, id="a class is made"),
        pytest.param("orders", {"priority"}, id="an object has hooks"),
        pytest.param("plugin", {"score"}, id="a Plugin is taken as it is"),
        pytest.param("policy", {"score"}, id="a Policy is its score"),
        pytest.param("Orders.priority", {"score"}, id="a name with dots is followed"),
    ],
)
@pytest.mark.usefixtures("own")
def test_s13_a_python_plugin_is_named_by_module_and_attribute(attribute: str, hooks: set[str]):
    plugin = load_plugin("mine", f"own_plugins:{attribute}")
    assert plugin.name == "mine"
    assert {hook for hook in ("score", "priority", "preemption_policy") if getattr(plugin, hook) is not None} == hooks


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("own_plugins", "neither module:attribute nor", id="no attribute"),
        pytest.param("own_plugins:gone", "own_plugins has no gone", id="an attribute that is not there"),
        pytest.param("no_such_module_here:x", "no_such_module_here does not import: ModuleNotFoundError", id="a module that is not there"),
        pytest.param("own_plugins:number", r"is int, and has none of score\(\)", id="nothing callable"),
        pytest.param("own_plugins:Awkward", r"Awkward\(\) raised TypeError", id="a class that wants arguments"),
        pytest.param("own_plugins:hybrid", "a Policy with a pick of its own", id="a policy that is more than a score"),
    ],
)
@pytest.mark.usefixtures("own")
def test_an_invalid_source_is_reported(source: str, words: str):
    with pytest.raises(PluginError, match=words):
        load_plugin("mine", source)


def test_s13_a_wasm_file_is_found_beside_the_configuration(tmp_path: Path):
    (tmp_path / "p.wat").write_text(
        '(module (func (export "priority") (param f64 f64 f64 f64 f64) (result f64) (local.get 0)))', encoding="utf-8"
    )
    assert load_plugin("mine", "p.wat", folder=tmp_path).priority is not None


@pytest.mark.usefixtures("own")
def test_s13_installed_packages_offer_plugins_by_entry_points(monkeypatch: pytest.MonkeyPatch):
    announced = [
        importlib.metadata.EntryPoint("installed", "own_plugins:flat", plugin_loading.GROUP),
        importlib.metadata.EntryPoint("both", "own_plugins:flat", plugin_loading.GROUP),
    ]
    monkeypatch.setattr(plugin_loading, "entry_points", lambda *, group: announced if group == "schedulemesh.policies" else [])
    loaded = load_plugins({"both": "own_plugins:Orders"})
    assert [(plugin.name, plugin.score is not None) for plugin in loaded] == [("both", False), ("installed", True)]
