"""The page about the federation file matches the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.config.sections.section import Section
from serve_apps.configuration_docs import page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def sections(parent: type[Section] = Section) -> Iterator[type[Section]]:
    for section in parent.__subclasses__():
        yield section
        yield from sections(section)


def test_the_page_is_what_the_models_say():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize("section", list(sections()), ids=lambda section: section.__name__)
def test_every_key_stands_on_the_page_with_its_meaning(section: type[Section]):
    text = PAGE.read_text(encoding="utf-8")
    for name, field in section.model_fields.items():
        assert field.description, f"{section.__name__}.{name} has no description"
        assert f"| `{field.alias or name}` |" in text
        assert f" {field.description} |" in text
