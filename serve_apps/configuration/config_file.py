"""Reading of a federation file from disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from federation.config.loading import FederationConfig, load_config
from federation.config.sections.root import WebhookSection
from federation.errors import ConfigError
from federation.file_problems import FileProblem
from mesh.plugins import WASM_SUFFIXES
from mesh.ray.plugins.plugin_loading import installed_names


def read_config(path: str | Path) -> FederationConfig:
    """Read and validate the file; the paths in it become absolute, relative to the file's folder.

    Raises:
        ConfigError: The file cannot be read, or its content is wrong (one line per problem).
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as broken:
        raise ConfigError(located=(FileProblem(source=str(path), message=f"is not UTF-8 text (byte {broken.start})"),)) from None
    except OSError as refused:
        raise ConfigError(located=(unread(path, refused),)) from None
    return config_in(text, source=str(path), folder=Path(path).resolve().parent)


def config_in(text: str, *, source: str, folder: Path) -> FederationConfig:
    """Validate the text as `read_config` does a file of the folder.

    Raises:
        ConfigError: The content is wrong (one line per problem).
    """
    config = load_config(
        text,
        source=source,
        is_folder=lambda entry: (folder / entry).is_dir(),
        is_file=lambda entry: (folder / entry).is_file(),
        installed=installed_names(),
    )
    clusters = {
        name: section if section.token_file is None else section.model_copy(update={"token_file": str(folder / section.token_file)})
        for name, section in config.clusters.items()
    }
    paths = tuple(str((folder / entry).resolve()) for entry in config.import_paths)
    meshes = {name: section.model_copy(update={"plugins": _located(section.plugins, folder)}) for name, section in config.meshes.items()}
    webhooks = config.webhooks.model_copy(update={"endpoints": _with_located_secrets(config, folder)})
    return config.model_copy(update={"import_paths": paths, "clusters": clusters, "meshes": meshes, "webhooks": webhooks})


def _with_located_secrets(config: FederationConfig, folder: Path) -> dict[str, WebhookSection]:
    return {
        name: section if section.secret_file is None else section.model_copy(update={"secret_file": str(folder / section.secret_file)})
        for name, section in config.webhooks.endpoints.items()
    }


def _located(plugins: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {name: str(folder / source) if source.endswith(WASM_SUFFIXES) else source for name, source in plugins.items()}


def unread(path: str | Path, refused: OSError) -> FileProblem:
    """Return the error for a file that cannot be read."""
    remedy = "give a file that can be read" if Path(path).is_absolute() else f"give a file that can be read from {Path.cwd()}"
    return FileProblem(source=str(path), message=f"cannot be read: {refused.strerror}", remedy=remedy)
