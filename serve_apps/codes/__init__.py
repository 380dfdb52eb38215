"""Codes that users meet: reasons of decisions and waits, and errors of the root, each with its meaning and what to do.

catalogue       one lookup over both                      errors         table of the root's errors
member_docs     docstrings of the members of enums        pages          docs/codes.md, and a page for each code
reasons         what to do about each reason              routes         the pages at a root
"""
