"""The door to a federation file on disk."""

from __future__ import annotations

from pathlib import Path

from federation.config import FederationConfig, load_config
from federation.errors import ConfigError


def read_config(path: str | Path) -> FederationConfig:
    """The checked configuration in the file; its `import_paths` are made absolute, from the file's own folder.

    Raises:
        ConfigError: The file cannot be read, or what stands in it is wrong (one line per problem).
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as broken:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {broken.start})") from None
    except OSError as refused:
        raise ConfigError(f"{path}: cannot be read: {refused.strerror}") from None
    config = load_config(text, source=str(path))
    folder = Path(path).resolve().parent
    missing = [entry for entry in config.import_paths if not (folder / entry).is_dir()]
    if missing:
        told = "\n".join(f"{path}: import_paths: there is no folder {folder / entry}" for entry in missing)
        raise ConfigError(told, warnings=config.warnings)
    return config.model_copy(update={"import_paths": tuple(str((folder / entry).resolve()) for entry in config.import_paths)})
