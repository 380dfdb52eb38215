"""Laws of reading a federation file: any value at any key gives a configuration or errors with paths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import yaml
from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.config.loading import load_config
from federation.config.shape import JsonSchema, resolved, schema
from federation.errors import ConfigError

SMALL = """\
federation: {name: small}
root: {cluster: root}
clusters: {local: {shared: true, nodes: [{cpu: 4, labels: {zone: east}}]}, root: {nodes: [{cpu: 1}]}}
flavors: {standard: {labels: {tier: standard}}}
meshes: {east: {cluster: local, labels: {tier: standard}, pools: {general: {flavor: standard, capacity: {cpu: 4}}}}}
tenants: {acme: {limits: {windows: [{opens: 9h, lasts: 8h}]}, quotas: {standard: {cpu: {nominal: 4}}}}}
"""
NAMES = {"clusters": "local", "flavors": "standard", "meshes": "east", "pools": "general", "tenants": "acme", "quotas": "standard"}
DEPTH_MAX = 7


def places(form: JsonSchema, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield every key of the schema; a mapping by name gets one name."""
    if len(above) == DEPTH_MAX:
        return
    for choice in resolved(form):
        below = dict(choice.get("properties", {}))
        if isinstance(choice.get("additionalProperties"), dict):
            below[NAMES.get(str(above[-1]), "cpu")] = choice["additionalProperties"]
        if "items" in choice and above[-1] != "tenants":
            below[0] = choice["items"]
        for key, part in below.items():
            yield (*above, key)
            yield from places(part, (*above, key))


def written(place: tuple[str | int, ...], value: object) -> str:
    """Return the small file with the value at the path; missing parents are made."""
    whole: Any = yaml.safe_load(SMALL)
    part = whole
    for key, following in pairwise(place):
        fresh: Any = [{}] if following == 0 else {}
        if isinstance(part, dict):
            part[key] = part[key] if isinstance(part.get(key), type(fresh)) else fresh
        part = part[key]
    part[place[-1]] = value
    return yaml.safe_dump(whole, sort_keys=False)


QUANTITIES = st.builds("{}{}".format, st.integers(-1, 10**6), st.sampled_from(["", "ms", "s", "d", "B", "KiB", "TiB"]))
VALUES = st.one_of(QUANTITIES, st.text("0123456789.-/=!(), abms", max_size=12), st.none(), st.booleans(), st.integers(-1, 10**12))


def complaints(text: str) -> list[str]:
    """Return the errors about the file; none when it is valid. Any other exception propagates."""
    try:
        load_config(text, source="x.yaml")
    except ConfigError as refused:
        return str(refused).splitlines()
    return []


@settings(max_examples=examples(200))
@given(place=st.sampled_from(sorted(set(places(schema())), key=str)), value=VALUES)
def test_any_value_at_any_key_is_read_or_reported_with_its_path(place: tuple[str | int, ...], value: object):
    assert all(line.startswith("x.yaml:") for line in complaints(written(place, value)))


def test_a_zero_time_or_amount_is_read_or_reported():
    for place in sorted(set(places(schema())), key=str):
        for nothing in ("0s", 0):
            assert all(line.startswith("x.yaml:") for line in complaints(written(place, nothing))), place
