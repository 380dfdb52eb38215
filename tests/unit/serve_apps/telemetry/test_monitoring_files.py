"""The Grafana board, the alert rules and the scrape configuration in `configs/monitoring`, against a gateway's metrics."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from monitoring import BOARD, CASES, MONITORING, PROMTOOL, RULES, TARGETS, for_all, named_in, needs_promtool

from federation.registry import RegistryNote
from federation.stage_metrics import StageMetrics, TenantMetrics
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld, with_mesh


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Return the names of all series of a gateway with a mesh, each with its labels."""
    world = GatewayWorld()
    with_mesh(world)
    seen = TenantMetrics(
        tenant=RESEARCH, tier="high", schedule_latency_p95_ms=1, queue_wait_time_p99_ms=1, stage_run_time_p95_ms=1, started=1
    )
    world.registry.note(RegistryNote(watched_ms=1, stage_metrics=StageMetrics(at_ms=world.store.snapshot().at_ms, tenants=(seen,))), 0)
    world.http().get("/v1/runs")
    names: dict[str, set[str]] = {}
    for line in world.http("*").get("/metrics").text.splitlines():
        if not line.startswith("#"):
            series = line.rpartition(" ")[0]
            names.setdefault(series.partition("{")[0], set()).update(re.findall(r'(\w+)="', series))
    return names


@pytest.mark.parametrize("file", ["grafana.json", "alerts.yaml", "alerts_test.yaml"])
def test_every_metric_that_a_file_names_is_served(served, file):
    named = named_in((MONITORING / file).read_text(encoding="utf-8"))
    assert named
    assert named <= set(served)


def test_every_label_of_a_query_is_served(served):
    for query in [*(target["expr"] for target in TARGETS), *(rule["expr"] for rule in RULES)]:
        has = set().union(*(served[name] for name in named_in(query)), {"job"})
        matched = {label for group in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)\s*=", group)}
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        assert matched | grouped <= has, query


def test_legends_use_only_labels_that_the_query_keeps():
    for target in TARGETS:
        kept = {label.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, target


def test_panels_lie_side_by_side_within_the_board():
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "is quiet"])
def test_a_case_of_each_alert(fires):
    checked = [check["alertname"] for case in CASES for check in case["alert_rule_test"] if bool(check["exp_alerts"]) is fires]
    assert checked == [rule["alert"] for rule in RULES]


def test_the_scrape_sends_a_key_and_loads_the_rules():
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert config["rule_files"] == ["alerts.yaml"]
    assert (job["metrics_path"], job["authorization"]["type"]) == ("/metrics", "Bearer")
    assert {label for rule in RULES for label in re.findall(r'job="(\w+)"', rule["expr"])} == {job["job_name"]}


def promtool(*arguments: str | Path) -> None:
    """Run promtool in the folder of the files and expect success."""
    done = subprocess.run([str(PROMTOOL), *map(str, arguments)], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml"), ("check", "config", "--syntax-only", "prometheus.yml")],
    ids=["rules are valid", "alerts fire", "scrape configuration is valid"],
)
def test_prometheus_accepts_the_files(arguments):
    promtool(*arguments)


@needs_promtool
def test_prometheus_accepts_the_queries_of_the_board(tmp_path):
    rules = [{"record": f"board:query{place}", "expr": for_all(target["expr"])} for place, target in enumerate(TARGETS)]
    (tmp_path / "board.yaml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "board.yaml")
