"""`python -m serve_apps.configuration_docs FILE` writes the page about the federation file, from the models that read it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from federation.config.sections.values import format_duration
from federation.config.shape import JsonSchema, resolved, schema
from mesh.core.resources import format_units

_INTRO = """\
# The federation file

One YAML file describes a whole federation. Examples: `configs/quickstart.yaml`, `configs/two_clusters.yaml` and `configs/two_tenants.yaml`.
`schedulemesh validate FILE` reports every error at once, each with line, column, path and remedy. Checks that compare values, such as
`heartbeat` with `lease_ttl`, and warnings run once each value is valid. Checks of names run once every value without a default is valid.
`make docs` writes this page from the models that read the file.

- A **time** is text with its unit: `500ms`, `10s`, `5m`, `2h`, `1d`.
- A **size** is a whole number of bytes, or text: `64KiB`, `200MiB`, `20GB`.
- An **amount** is of a resource: `2` or `0.5` of `cpu`, `gpu` or a custom resource (no finer than 1/10 000), a size of `memory`.
- A **name** is 1 to 64 of `a-z`, `0-9`, `.`, `_`, `-`, and begins with a letter or a digit.
- Only plain YAML is read. `no`, `on` and `2026-11-20` are text; keys are text and unique.
- An unknown key is an error.
"""

_FORMATS = ("time", "size", "amount")  #: Explained at the top of the page.
_TYPES = {"string": "text", "boolean": "`true` or `false`", "null": "null", "number": "number"}


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join((_INTRO, *_sections("", schema(), ())))


def _sections(place: str, section: JsonSchema, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the section's table, then the sections below it, in the order of the file."""
    title = str(section["title"])
    yield f"## `{place}`" if place else "## The top of the file"
    yield f"\n{section['description']}\n"
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    required = section.get("required", [])
    for key, entry in section["properties"].items():
        default = "required" if key in required else _default(entry)
        yield f"| `{key}` | {_value(entry)} | {default} | {entry.get('description') or resolved(entry)[0]['description']} |"
    yield ""
    for key, entry in section["properties"].items():
        for below, part in _below(f"{place}.{key}".removeprefix("."), entry):
            if part["title"] not in (*above, title):  # tenants nest in tenants: described once
                yield from _sections(below, part, (*above, title))


def _below(place: str, entry: JsonSchema) -> Iterator[tuple[str, JsonSchema]]:
    """Yield the sections within an entry, each with its path: `meshes.NAME.pools.NAME`, `clusters.NAME.nodes[]`."""
    for form in resolved(entry):
        if "properties" in form:
            yield place, form
        elif isinstance(form.get("additionalProperties"), dict):
            yield from _below(f"{place}.NAME", form["additionalProperties"])
        elif "items" in form:
            yield from _below(f"{place}[]", form["items"])


def _value(entry: JsonSchema) -> str:
    words = dict.fromkeys(_form(form) for form in resolved(entry))
    return " or ".join(words)


def _form(form: JsonSchema) -> str:
    if form.get("format") in _FORMATS:
        return str(form["format"])
    if "properties" in form:
        return "section"
    if form.get("type") == "object":
        return f"mapping of names to {_value(form['additionalProperties'])}"
    if form.get("type") == "array":
        return f"list of {_value(form['items'])}"
    if form.get("type") == "integer":
        bounds = (form.get("minimum"), form.get("maximum"))
        return "whole number" if None in bounds else f"{bounds[0]} to {bounds[1]}"
    return _TYPES[form["type"]]


def _default(entry: JsonSchema) -> str:
    default = entry.get("default")
    formats = {form.get("format") for form in resolved(entry)}
    if any("properties" in form for form in resolved(entry)) and isinstance(default, dict):
        return "as below"
    if isinstance(default, int) and "time" in formats:
        return f"`{format_duration(default)}`"
    if isinstance(default, int) and "size" in formats:
        return f"`{format_units('memory', default)}`"
    return f"`{json.dumps(default)}`" if default != "" else "empty"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
