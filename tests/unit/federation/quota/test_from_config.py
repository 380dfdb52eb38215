from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from federation.config.loading import load_config
from federation.config.quota_rules import forest_with_settings, rules_of
from federation.errors import ConfigError
from federation.quota.policies import MESH, OnMaxWait, OnQuotaReduction, PreemptionMode, Rules, Stop, TimeWindow
from federation.quota.scheduler import QuotaScheduler

EXAMPLE = Path(__file__).parents[4] / "configs" / "quickstart.yaml"


def written(tenants: dict, **others) -> str:
    document = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    document.pop("quota")
    for mesh in document["meshes"].values():
        mesh["tenants"] = ["*"]
    return yaml.safe_dump({**document, **others, "tenants": tenants})


def parts(tenants: dict, **others):
    config = load_config(written(tenants, **others), source="test.yaml")
    forest, settings = forest_with_settings(config)
    return forest, {forest.names[node]: one for node, one in settings.items()}, rules_of(config)


def complaint(tenants: dict) -> str:
    with pytest.raises(ConfigError) as wrong:
        load_config(written(tenants), source="test.yaml")
    return str(wrong.value)


def test_a_file_that_says_nothing_gives_the_default_rules():
    _, settings, rules = parts({"acme": {}})
    assert rules == MESH
    own = settings["acme"]
    assert (own.policies.within_queue, own.policies.reclaim, own.policies.borrow) == (
        PreemptionMode.LOWER_PRIORITY,
        PreemptionMode.ANY,
        PreemptionMode.NEVER,
    )
    assert (own.on_quota_reduction, own.stop, own.is_strict, own.max_wait_ms) == (OnQuotaReduction.KEEP, Stop.NONE, False, None)


def test_rules_are_read():
    quota = {
        "fair_sharing": False,
        "min_run": "5s",
        "reservation_timeout": "0s",
        "history_half_life": "1h",
    }
    _, _, rules = parts({"acme": {}}, quota=quota)
    assert rules == Rules(fair_sharing=False, min_run_ms=5_000, reservation_timeout_ms=0, history_half_life_ms=3_600_000)


def test_scheduling_is_inherited_key_by_key():
    tenants = {
        "acme": {
            "scheduling": {"reclaim": "never", "min_run": "9s"},
            "limits": {"max_wait": "1h"},
            "tenants": {
                "lab": {"scheduling": {"reclaim": "lower_priority", "on_quota_reduction": "evict"}},
                "ops": {"limits": {"max_wait": "1m"}},
            },
        }
    }
    _, settings, _ = parts(tenants)
    lab, ops = settings["acme/lab"], settings["acme/ops"]
    assert (lab.policies.reclaim, lab.min_run_ms, lab.on_quota_reduction, lab.max_wait_ms) == (
        PreemptionMode.LOWER_PRIORITY,
        9_000,
        OnQuotaReduction.EVICT,
        3_600_000,
    )
    assert (ops.policies.reclaim, ops.on_quota_reduction, ops.max_wait_ms) == (PreemptionMode.NEVER, OnQuotaReduction.KEEP, 60_000)


def test_flavors_follow_the_tenant_then_the_file():
    below = {"lab": {}, "web": {"scheduling": {"flavor_order": []}}, "ops": {"scheduling": {"flavor_order": ["spot", "standard"]}}}
    tenants = {"acme": {"scheduling": {"flavor_order": ["standard"]}, "tenants": below}, "other": {}}
    _, settings, _ = parts(tenants, flavors={"old": {}, "spot": {}, "standard": {}})
    assert {path: settings[path].flavors for path in ("acme/lab", "acme/web", "acme/ops", "other")} == {
        "acme/lab": ("standard", "old", "spot"),
        "acme/web": ("old", "spot", "standard"),
        "acme/ops": ("spot", "standard", "old"),
        "other": ("old", "spot", "standard"),
    }


def test_max_wait_defaults_to_refusal_and_is_inherited():
    below = {"lab": {}, "ops": {"limits": {"max_wait": "1m"}}, "web": {"limits": {"on_max_wait": "refuse"}}}
    _, settings, _ = parts({"acme": {"limits": {"max_wait": "1h", "on_max_wait": "first"}, "tenants": below}, "other": {}})
    found = {
        path: (settings[path].max_wait_ms, settings[path].on_max_wait) for path in ("acme/*", "acme/lab", "acme/ops", "acme/web", "other")
    }
    assert found == {
        "acme/*": (3_600_000, OnMaxWait.FIRST),
        "acme/lab": (3_600_000, OnMaxWait.FIRST),
        "acme/ops": (60_000, OnMaxWait.FIRST),
        "acme/web": (3_600_000, OnMaxWait.REFUSE),
        "other": (None, OnMaxWait.REFUSE),
    }


def test_the_lowest_priority_bound_above_a_tenant_holds():
    below = {"lab": {"limits": {"priority_max": 3}, "tenants": {"nlp": {}}}, "ops": {}}
    _, settings, _ = parts({"acme": {"limits": {"priority_max": 5}, "tenants": below}, "other": {}})
    assert {path: settings[path].priority_max for path in ("acme", "acme/*", "acme/lab", "acme/lab/nlp", "acme/ops", "other")} == {
        "acme": 5,
        "acme/*": 5,
        "acme/lab": 3,
        "acme/lab/nlp": 3,
        "acme/ops": 5,
        "other": None,
    }


def test_a_priority_bound_above_the_parents_is_an_error():
    below = {"lab": {"tenants": {"nlp": {"limits": {"priority_max": 7}}}}}
    problem = complaint({"acme": {"limits": {"priority_max": 5}, "tenants": below}})
    text = "must be at most 5, the bound of acme (got 7); remove the key to use that bound"
    assert f"tenants.acme.tenants.lab.tenants.nlp.limits.priority_max: {text}" in problem


def test_limits_stand_at_the_tenant_and_weights_too():
    window = {"opens": "22h", "lasts": "8h"}
    limits = {"running_max": 7, "running_max_per_user": 2, "stop": "hold", "windows": [window]}
    forest, settings, _ = parts({"acme": {"weight": "1/3", "limits": limits, "tenants": {"lab": {"weight": 0.5}}}})
    own = settings["acme"]
    assert (own.running_max, own.running_max_per_user, own.stop) == (7, 2, Stop.HOLD)
    assert own.windows == (TimeWindow(opens_ms=22 * 3_600_000, lasts_ms=8 * 3_600_000),)
    assert [forest.weights[forest.index[name]] for name in ("acme", "acme/lab")] == [Fraction(1, 3), Fraction(1, 2)]
    assert settings["acme/*"].running_max is None


def test_the_shipped_file_makes_a_scheduler():
    config = load_config(EXAMPLE.read_text(encoding="utf-8"), source=str(EXAMPLE))
    scheduler = QuotaScheduler(*forest_with_settings(config), rules_of(config))
    assert scheduler.round(0) == []
    assert scheduler.forest.tenant_of(scheduler.queue_node("acme")) == "acme"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        pytest.param({"weight": -1}, "must be 0, or a number", id="a negative weight"),
        pytest.param({"weight": "1/0"}, "must be 0, or a number", id="an invalid weight"),
        pytest.param({"scheduling": {"reclaim": "all"}}, "must be one of never, lower_priority, any", id="an unknown policy"),
        pytest.param({"scheduling": {"reclam": "any"}}, "did you mean reclaim", id="a misspelt key"),
        pytest.param({"scheduling": {"flavor_order": ["standart"]}}, "did you mean standard", id="an order of an unknown flavor"),
        pytest.param({"scheduling": {"flavor_order": ["standard", "standard"]}}, "named twice", id="a duplicate flavor in an order"),
        pytest.param({"limits": {"priority_max": 1_000_001}}, "must be at most 1000000", id="a bound that no priority reaches"),
        pytest.param({"limits": {"priority_max": "high"}}, "must be a whole number", id="a bound in words"),
        pytest.param({"limits": {"running_max": 0}}, "must be at least 1", id="an empty limit"),
        pytest.param(
            {"limits": {"windows": [{"opens": "30h", "lasts": "1h"}]}}, "must be less than `every`", id="a window after its period"
        ),
        pytest.param({"limits": {"windows": [{"opens": "0s", "lasts": "1d"}]}}, "may start at any time", id="a window that never closes"),
    ],
)
def test_invalid_section_is_an_error(section: dict, words: str):
    assert words in complaint({"acme": section})
