"""The kind `selector`: parse a selector, and match labels against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.conformance.fields import Fields
from mesh.core.labels import matches, mismatch, parse_wish
from mesh.errors import SelectorError


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parsed selector, and whether the labels of the case match."""
    with Fields(case["given"], "given") as given:
        selector, labels = given.take("selector"), given.take("labels", {})
    try:
        wishes = {key: parse_wish(key, written) for key, written in selector.items()}
    except SelectorError as wrong:
        return {"error": "SelectorError", "words": str(wrong)}
    return {
        "matches": matches(selector, labels),
        "words": mismatch(selector, labels, "the node"),
        "wishes": {key: {"values": sorted(wish.values), "shuns": wish.shuns} for key, wish in wishes.items()},
    }
