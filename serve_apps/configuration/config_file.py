"""The door to a federation file on disk."""

from __future__ import annotations

from pathlib import Path

from federation.config.loading import FederationConfig, load_config
from federation.errors import ConfigError
from federation.located import Located


def read_config(path: str | Path) -> FederationConfig:
    """The checked configuration in the file; its `import_paths` and `token_file`s are made absolute, from the file's own folder.

    Raises:
        ConfigError: The file cannot be read, or what stands in it is wrong (one line per problem).
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as broken:
        raise ConfigError(located=(Located(source=str(path), message=f"is not UTF-8 text (byte {broken.start})"),)) from None
    except OSError as refused:
        raise ConfigError(located=(unread(path, refused),)) from None
    folder = Path(path).resolve().parent
    config = load_config(text, source=str(path), is_folder=lambda entry: (folder / entry).is_dir())
    clusters = {
        name: section if section.token_file is None else section.model_copy(update={"token_file": str(folder / section.token_file)})
        for name, section in config.clusters.items()
    }
    paths = tuple(str((folder / entry).resolve()) for entry in config.import_paths)
    return config.model_copy(update={"import_paths": paths, "clusters": clusters})


def unread(path: str | Path, refused: OSError) -> Located:
    """What is told of a file that was named and cannot be read."""
    remedy = "name a file that can be read" if Path(path).is_absolute() else f"name a file that can be read from {Path.cwd()}"
    return Located(source=str(path), message=f"cannot be read: {refused.strerror}", remedy=remedy)
