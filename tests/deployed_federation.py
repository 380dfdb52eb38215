"""Federation file of a root that Ray Serve deploys: one mesh that joins, one tenant."""

from __future__ import annotations

from pathlib import Path

TEXT = """\
federation: {name: shipped}
storage: {url: "STORAGE"}
root: {cluster: control, host: 127.0.0.1, port: 8123, gateways: 2}
clusters:
  control: {address: "127.0.0.1:6379"}
  lab: {address: "10.0.0.7:6379"}
flavors: {standard: {}}
meshes:
  lab: {cluster: lab, link: joins, labels: {"on": "no"}, pools: {general: {flavor: standard, capacity: {cpu: 2, memory: 1GiB}}}}
tenants:
  acme: {quotas: {standard: {cpu: {nominal: 2}, memory: {nominal: 1GiB}}}, pickled_code: true}
"""


def written(folder: Path, *, storage: str = "s3://bucket/values", changes: tuple[tuple[str, str], ...] = ()) -> Path:
    """Write the file into the folder, with texts replaced by others, and return its path."""
    text = TEXT.replace("STORAGE", storage)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "federation.yaml"
    file.write_text(text, encoding="utf-8")
    return file
