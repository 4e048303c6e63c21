"""The Kubernetes manifests: in the form that its API accepts, and consistent with the image and the gateway."""

import copy
import json
from typing import Any

import pytest

from app.api import health
from app.settings import Settings
from tests.system.deploy.shipped import (
    DEPLOY,
    OVERLAYS,
    Document,
    container,
    dockerfile,
    load,
    one,
    overlay,
    rendered,
    secrets,
    yaml,
)
from tests.system.deploy.test_monitoring import labels_of_metrics

VERSIONS = ("1.31", "1.37")
CUSTOM = {"ServiceMonitor", "RayService"}
"""Kinds of operators, whose schemas aren't available."""
PRODUCTION = "postgres-production"


def check(document: Document, version: str) -> None:
    """Raises if that version of Kubernetes would reject ``document``, including unknown fields."""
    validator: Any = pytest.importorskip("kubernetes_validate", reason="needs the extra deploy")
    validator.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OVERLAYS)
def test_every_manifest_is_valid(name: str, version: str) -> None:
    documents = overlay(name)
    assert {doc["kind"] for doc in documents} >= {"StatefulSet", "Service", "NetworkPolicy", "ConfigMap"}
    for document in documents:
        check(document, version)


@pytest.mark.parametrize("path", ["spec/replicaz", "spec/template/spec/containers/0/securityContext/readOnlyRoot"])
def test_misspelt_field_is_detected(path: str) -> None:
    broken = copy.deepcopy(one(overlay("sqlite-single"), "StatefulSet"))
    *way, last = path.split("/")
    place: Any = broken
    for step in way:
        place = place[int(step) if step.isdecimal() else step]
    place[last] = True
    with pytest.raises(Exception, match=last):
        check(broken, VERSIONS[-1])


@pytest.mark.parametrize("name", OVERLAYS)
def test_container_is_unprivileged_and_writes_only_to_its_volumes(name: str) -> None:
    pod = one(overlay(name), "StatefulSet")["spec"]["template"]["spec"]
    (gateway,) = pod["containers"]
    user, group = map(int, dockerfile()["USER"].split(":"))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (user, group)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert gateway["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in gateway["volumeMounts"]} == {"/data", "/tmp"}
    assert gateway["resources"]["limits"].keys() == {"cpu", "memory"} == gateway["resources"]["requests"].keys()


@pytest.mark.parametrize("name", OVERLAYS)
def test_settings_exist_and_their_values_are_valid(name: str) -> None:
    documents = overlay(name)
    gateway = container(documents)
    data = one(documents, "ConfigMap")["data"]
    assert gateway["envFrom"] == [{"configMapRef": {"name": one(documents, "ConfigMap")["metadata"]["name"]}}]
    named = {entry["name"] for entry in gateway["env"]} | data.keys()
    assert {one.removeprefix("GROUNDLANE_").lower() for one in named} <= Settings.model_fields.keys()
    settings = Settings(_env_file=None, **{key.removeprefix("GROUNDLANE_").lower(): data[key] for key in data})
    assert str(settings.event_journal).startswith("/data/")
    stopped_s = settings.shutdown_grace_s + gateway["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert one(documents, "StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= stopped_s + 10


def test_probes_use_existing_paths_and_the_port_of_the_image() -> None:
    gateway = container(overlay("sqlite-single"))
    (port,) = gateway["ports"]
    assert port == {"name": "http", "containerPort": int(dockerfile()["EXPOSE"])}
    paths = {route.path for route in health.router.routes if hasattr(route, "path")}
    probes = {name: gateway[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= paths
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert (probes["liveness"]["path"], probes["readiness"]["path"]) == ("/healthz", "/readyz")


def test_selectors_match_the_pods() -> None:
    documents = overlay(PRODUCTION)
    labels = one(documents, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        *[doc["spec"]["selector"] for doc in documents if doc["kind"] == "Service"],
        one(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(documents, "StatefulSet")["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * 5
    assert one(documents, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"
    services = {doc["metadata"]["name"] for doc in documents if doc["kind"] == "Service"}
    assert one(documents, "StatefulSet")["spec"]["serviceName"] in services


def test_peers_of_the_network_policy_are_other_pods() -> None:
    """Kustomize writes the project's labels into every selector unless it is told not to."""
    policy = one(overlay(PRODUCTION), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    rules = [*policy["ingress"], *policy["egress"]]
    peers = [peer for rule in rules for peer in rule.get("from", []) + rule.get("to", [])]
    chosen = [peer["podSelector"]["matchLabels"] for peer in peers if "podSelector" in peer]
    assert {"k8s-app": "kube-dns"} in chosen
    assert {"groundlane-client": "true"} in chosen
    assert {"app.kubernetes.io/name": "groundlane"} not in chosen
    assert all(rule["ports"] for rule in rules)


def test_autoscaler_uses_an_existing_metric() -> None:
    metrics = one(overlay(PRODUCTION), "HorizontalPodAutoscaler")["spec"]["metrics"]
    name = metrics[0]["pods"]["metric"]["name"]
    assert name == "groundlane_judge_queue_depth"
    assert name in labels_of_metrics()
    (rule,) = load("prometheus/adapter.yaml")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(name + "{")
    assert rule["name"]["as"] == name


def test_production_has_three_pods_that_are_evicted_one_by_one() -> None:
    documents = overlay(PRODUCTION)
    assert "replicas" not in one(documents, "StatefulSet")["spec"], "each deployment would undo the autoscaler's number"
    assert one(documents, "HorizontalPodAutoscaler")["spec"]["minReplicas"] >= 3
    assert one(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    url = [entry for entry in container(documents)["env"] if entry["name"] == "GROUNDLANE_DATABASE_URL"]
    assert [entry["valueFrom"]["secretKeyRef"]["key"] for entry in url] == ["database-url"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_secrets_are_referenced_and_not_included(name: str) -> None:
    documents = overlay(name)
    assert "Secret" not in {doc["kind"] for doc in documents}
    assert list(secrets(documents)) == []
    sensitive = {key for key in Settings.model_fields if "SecretStr" in str(Settings.model_fields[key].annotation)}
    for entry in container(documents)["env"]:
        if entry["name"].removeprefix("GROUNDLANE_").lower() in sensitive:
            assert "secretKeyRef" in entry["valueFrom"]


def test_prometheus_scrapes_each_pod_once() -> None:
    (monitor,) = rendered(DEPLOY / "kubernetes" / "components" / "prometheus-operator")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [doc for doc in overlay(PRODUCTION) if doc["kind"] == "Service"]
    found = [doc for doc in services if wanted <= doc["metadata"]["labels"].items()]
    assert [doc["metadata"]["name"] for doc in found] == ["groundlane"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    assert monitor["kind"] in CUSTOM


def test_judge_on_kubernetes_has_the_same_ray_configuration() -> None:
    service = load("ray/rayservice.yaml")
    assert service["kind"] in CUSTOM
    assert yaml.safe_load(service["spec"]["serveConfigV2"]) == load("ray/serve.yaml")
    cluster = service["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        template = group["template"]
        check({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}, "template": template}, "1.37")
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert template["metadata"]["labels"] == {"groundlane-judge": "true"}, "KubeRay goes by its own names"
    assert list(secrets(service)) == []


def test_judge_on_ray_has_existing_settings_and_longer_timeouts_than_the_gateway() -> None:
    config = load("ray/serve.yaml")
    (application,) = config["applications"]
    names = {key.removeprefix("GROUNDLANE_").lower() for key in application["runtime_env"]["env_vars"]}
    assert names <= Settings.model_fields.keys()
    assert application["import_path"] == "groundlane_server.ray_serve:judge"
    assert config["http_options"]["request_timeout_s"] * 1e3 > Settings.model_fields["judge_timeout_ms"].default
    (deployment,) = application["deployments"]
    assert deployment["autoscaling_config"]["min_replicas"] >= 2
    assert deployment["backpressure_config"]["status_code"] == 429
    assert json.dumps(config), "nothing but plain values"
