"""Characters that names may hold, and escapes of all others in texts."""

import json

import pytest

from mesh.core.ids import is_fit_name
from mesh.core.printable import check_printable, escaped, escaped_json

UNPRINTABLE = ["\x00", "\x07", "\r", "\x1b", "\x7f", "\x9b", "\u061c", "\u200f", "\u2028", "\u202e", "\u2066", "\ufeff", "\ud800"]


@pytest.mark.parametrize("character", UNPRINTABLE, ids=ascii)
def test_a_text_shows_an_unprintable_character(character):
    assert escaped(f"a{character}b").isascii()
    assert escaped(f"a{character}b") == ascii(f"a{character}b")[1:-1]


@pytest.mark.parametrize("character", [*UNPRINTABLE, "\n", "\t"], ids=ascii)
def test_a_name_with_an_unprintable_one_is_refused(character):
    with pytest.raises(ValueError, match=r"character 2 of .* is a control character; leave it out"):
        check_printable(f"a{character}b")
    assert not is_fit_name(f"a{character}b")


@pytest.mark.parametrize("text", ["plain", "two\n\tlines", "Käse 价格 🙂 שלום", "a\\x1b"])
def test_what_can_be_printed_stays(text):
    assert escaped(text) == text


def test_json_with_unprintable_characters_stays_the_same_json():
    value = {"a\x9b": "\x1b\u202e\ufeff\n"}
    document = escaped_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(document) == value
    assert escaped(document) == document
