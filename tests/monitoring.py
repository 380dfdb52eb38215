"""Files of `configs/monitoring`, and a real Prometheus that scrapes a root as they say."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from patience import eventually

MONITORING = Path(__file__).parents[1] / "configs" / "monitoring"
BOARD = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
CASES = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text(encoding="utf-8"))["tests"]
#: Queries of the board, each with its legend.
TARGETS = [target for panel in BOARD["panels"] for target in panel["targets"]]
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not on PATH; Debian's package prometheus has it")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH; Debian's package prometheus has it")
#: Label `instance` of a target that is scraped with a key that the root does not know.
STRANGER = "stranger"


def named_in(text: str) -> set[str]:
    """Return the metrics that a query or a file names."""
    return set(re.findall(r"\bschedulemesh_\w+", text))


def for_all(query: str) -> str:
    """Return a query of the board with every variable at `All`."""
    return re.sub(r"\$\w+", ".*", query)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    address: str

    def names(self) -> set[str]:
        """Return the names of all series that have been scraped."""
        return set(self._ask("/api/v1/label/__name__/values"))

    def query(self, text: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query."""
        found: list[dict[str, Any]] = self._ask("/api/v1/query", query=text)["result"]
        return found

    def firing(self) -> dict[str, list[dict[str, Any]]]:
        """Return the alerts that fire, by name."""
        fire: dict[str, list[dict[str, Any]]] = {}
        for alert in self._ask("/api/v1/alerts")["alerts"]:
            if alert["state"] == "firing":
                fire.setdefault(alert["labels"]["alertname"], []).append(alert)
        return fire

    def _ask(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.address}{path}", params=parameters, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextlib.contextmanager
def scraping(root: str, key: str, folder: Path) -> Iterator[Prometheus]:
    """Start a Prometheus with the shipped scrape configuration, at short intervals, and with the shipped alerts, without their waits.

    A second target, with the label `instance` of `STRANGER`, is the same root with a key that the root does not know.

    Args:
        root: Address of the root, as `http://host:port`.
        key: API key of all tenants.
    """
    rules = [{name: value for name, value in rule.items() if name != "for"} for rule in RULES]
    (folder / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "schedulemesh", "rules": rules}]}))
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    target = {"targets": [root.removeprefix("http://")]}
    job["static_configs"] = [target]
    same_job = {"job": job["job_name"], "instance": STRANGER}
    stranger = {**job, "job_name": STRANGER, "static_configs": [{**target, "labels": same_job}]}
    for one, text in ((job, key), (stranger, "sm_00000000_0")):
        file = folder / f"{one['job_name']}.key"
        file.write_text(text)
        one["authorization"] = {**one["authorization"], "credentials_file": str(file)}
    config["scrape_configs"] = [job, stranger]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = folder / "prometheus.log"
    options = ("--config.file=prometheus.yml", "--storage.tsdb.path=series", "--web.listen-address=127.0.0.1:0")
    with log.open("w") as output:
        process = subprocess.Popen([str(PROMETHEUS), *options], cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        address = eventually(lambda: _listens_at(process, log))
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()


def _listens_at(process: subprocess.Popen[bytes], log: Path) -> str | None:
    assert process.poll() is None, log.read_text()
    found = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
    return found[1] if found else None
