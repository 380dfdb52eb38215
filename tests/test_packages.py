"""Contents of an installed distribution."""

from __future__ import annotations

from pathlib import Path

import pytest

setuptools = pytest.importorskip("setuptools")
toml = pytest.importorskip("tomllib", reason="Python 3.11 reads pyproject.toml by itself")

ROOT = Path(__file__).parent.parent


def test_every_folder_of_the_product_is_installed():
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    tops = {pattern.rstrip("*") for pattern in patterns}
    folders = {file.parent.relative_to(ROOT).as_posix().replace("/", ".") for top in tops for file in (ROOT / top).rglob("*.py")}
    assert set(setuptools.find_packages(str(ROOT), include=patterns)) == folders


def test_every_script_of_redis_is_installed():
    project = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["package-data"]
    scripts = {
        file.parent.relative_to(ROOT).as_posix().replace("/", ".") for top in ("federation", "dag") for file in (ROOT / top).rglob("*.lua")
    }
    assert scripts == {package for package, patterns in listed.items() if patterns == ["*.lua"]}
