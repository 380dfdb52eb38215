"""Names of Ray's resources, without those that Ray makes for one node or group."""

from __future__ import annotations

from mesh.core.resources import ResourceSet
from mesh.ray.cluster.node_resources import own_resources
from mesh.ray.user_code.ray_tables import held


def test_resources_of_one_node_or_group_become_no_columns():
    group = "0123456789abcdef0123456789abcdef0a00"
    made_up = {
        "node:10.0.0.7": 1.0,
        "node:__internal_head__": 1.0,
        f"CPU_group_{group}": 2.0,
        f"CPU_group_0_{group}": 2.0,
        f"bundle_group_{group}": 1000.0,
        f"bundle_group_0_{group}": 1000.0,
    }
    assert own_resources({"CPU": 4.0, "GPU": 1.0, **made_up}) == ResourceSet.of({"cpu": 4, "gpu": 1})
    assert held({"CPU": 4.0, **made_up}) == {"CPU": 4.0}


def test_a_resource_of_ones_own_may_be_called_a_group():
    kept = {"lamp_group_a": 2.0, "bundle_group_size": 1.0, "accelerator_type:A100": 1.0}
    assert own_resources(kept) == ResourceSet.of(kept)
    assert held(kept) == kept  # The guards of work outside a placement group count them.
