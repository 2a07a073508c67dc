"""The pages for servers name commands, settings, metrics and routes that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from quire import settings
from tests.api.serving import served
from tests.docs import markdown
from tests.unit.test_deploy_files import KNOWN, is_command

PAGE = "docs/kubernetes.md"
PAGES = ["docs/kubernetes.md", "docs/sizing.md", "docs/scaling.md", "docs/operations.md"]


def manifests() -> list[Any]:
    blocks = [block.text for block in markdown.blocks(PAGE) if block.language == "yaml"]
    return [each for text in blocks for each in yaml.safe_load_all(text)]


def pods() -> dict[str, dict[str, Any]]:
    """The template of each Deployment and Job, by its name."""
    made = [each for each in manifests() if "template" in each.get("spec", {})]
    return {each["metadata"]["name"]: each["spec"]["template"] for each in made}


def containers() -> list[dict[str, Any]]:
    return [
        one
        for each in manifests()
        for one in each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    ]


def test_every_manifest_has_a_kind_and_a_name_and_a_role_has_one_deployment():
    named = [(m["kind"], m["metadata"]["name"]) for m in manifests() if "kind" in m]
    assert len(set(named)) == len(named)
    assert {"Deployment", "Job", "Secret", "PodDisruptionBudget", "ScaledObject"} <= {
        kind for kind, _ in named
    }


def test_manifests_that_name_each_other_name_what_is_there():
    found = manifests()
    named = {(m["kind"], m["metadata"]["name"]): m for m in found if "kind" in m}
    labels = [pod.get("metadata", {}).get("labels") for pod in pods().values()]
    for (kind, _), each in named.items():
        spec = each.get("spec", {})
        selector = spec.get("selector", {})
        if kind == "Deployment":
            assert selector["matchLabels"] == spec["template"]["metadata"]["labels"]
        elif selector:
            assert selector.get("matchLabels", selector) in labels
        if target := spec.get("scaleTargetRef"):
            assert ("Deployment", target["name"]) in named
    for pod in (each["spec"] for each in pods().values()):
        volumes = {volume["name"] for volume in pod["volumes"]}
        secrets = {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        assert secrets and all(("Secret", name) in named for name in secrets)
        for one in pod["containers"]:
            assert {mount["name"] for mount in one["volumeMounts"]} == volumes
            for each in one.get("envFrom", ()):
                assert ("ConfigMap", each["configMapRef"]["name"]) in named


def test_every_role_has_a_deployment_with_a_probe_a_limit_and_no_rights():
    lasting = {name: pod["spec"] for name, pod in pods().items() if "migrate" not in name}
    assert set(lasting) == {"quire-api", "quire-worker", "quire-scheduler", "quire-flower"}
    for pod in lasting.values():
        for one in pod["containers"]:
            assert "livenessProbe" in one and "memory" in one["resources"]["limits"]


def test_each_pod_has_no_token_of_the_cluster_no_capability_and_a_seccomp_profile():
    for name, pod in pods().items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for one in spec["containers"]:
            context = one["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["allowPrivilegeEscalation"] is False, name


def test_network_policies_close_everything_and_open_doors_of_pods_that_are_there():
    policies = [each["spec"] for each in manifests() if each.get("kind") == "NetworkPolicy"]
    [closed] = [spec for spec in policies if spec["podSelector"] == {}]
    assert set(closed["policyTypes"]) == {"Ingress", "Egress"}
    assert not {"ingress", "egress"} & set(closed)
    named = set()
    for selector in (spec["podSelector"] for spec in policies):
        named |= {selector["matchLabels"]["app"]} if "matchLabels" in selector else set()
        for expression in selector.get("matchExpressions", ()):
            named |= set(expression["values"])
    assert named == {pod["metadata"]["labels"]["app"] for pod in pods().values()}
    open_to_all = [spec for spec in policies if "0.0.0.0/0" in str(spec)]
    assert [spec["podSelector"]["matchLabels"]["app"] for spec in open_to_all] == ["quire-worker"]


def test_pods_are_not_told_of_services_by_variables_that_are_settings():
    assert len(pods()) >= 4
    assert all(pod["spec"]["enableServiceLinks"] is False for pod in pods().values())


def test_secrets_are_where_settings_look_for_them():
    [config] = [m["data"] for m in manifests() if m.get("kind") == "ConfigMap"]
    kept = {m["metadata"]["name"]: m for m in manifests() if m.get("kind") == "Secret"}
    for pod in (each["spec"] for each in pods().values()):
        [volume] = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
        for one in pod["containers"]:
            given = config if "envFrom" in one else {e["name"]: e["value"] for e in one["env"]}
            files = [Path(value) for name, value in given.items() if name.endswith("_FILE")]
            assert {path.name for path in files} == set(kept[volume]["stringData"])
            [mount] = [m["mountPath"] for m in one["volumeMounts"] if m["name"] == "secrets"]
            assert {str(path.parent) for path in files} == {mount}


def test_pods_run_commands_and_probes_that_exist():
    found = containers()
    assert {one["name"] for one in found} == {"migrate", "api", "worker", "scheduler", "flower"}
    for one in found:
        if one["name"] == "flower":
            assert one["command"][:4] == ["quire-entrypoint", "celery", "-A", "quire.celery"]
            continue
        assert one["command"][0] == "quire" and is_command(one["command"][1:])
        for probe in ("livenessProbe", "readinessProbe"):
            if "exec" in one.get(probe, {}):
                assert is_command(one[probe]["exec"]["command"][1:])


def test_pods_have_more_time_to_stop_than_quire_takes():
    for each in manifests():
        pod = each.get("spec", {}).get("template", {}).get("spec", {})
        for one in pod.get("containers", ()):
            given = {e["name"]: e["value"] for e in one.get("env", ())}
            if grace := given.get("QUIRE_STOP_GRACE"):
                assert pod["terminationGracePeriodSeconds"] > float(grace) + 10


def test_routes_and_metrics_of_the_page_are_told_by_a_real_server(home: Path):
    with served(home=home) as at:
        at.app.submit("noop")
        text = at.http.get("/metrics").text
        told = {
            sample.name
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        } | set(re.findall(r"^# TYPE (\w+)", text, re.M))
        for one in (each for each in containers() if each["name"] != "flower"):
            for probe in ("livenessProbe", "readinessProbe"):
                if "httpGet" in one.get(probe, {}):
                    assert at.http.get(one[probe]["httpGet"]["path"]).status_code == 200
    named = set(re.findall(r"\bquire_[a-z_]+\b", markdown.read(PAGE))) - {"quire_token"}
    assert "quire_oldest_ready_seconds" in named
    assert named <= told


@pytest.mark.parametrize("page", PAGES)
def test_settings_that_a_page_names_exist(page: str):
    named = {n.removesuffix("_FILE") for n in re.findall(r"\bQUIRE_[A-Z_]+\b", markdown.read(page))}
    assert named - KNOWN <= {"QUIRE_X"}


def test_the_ports_of_the_pages_are_those_of_the_settings():
    default = {name: value for name, value, _ in settings.described()}
    assert default["QUIRE_API_PORT"] == 8750
    assert [p["containerPort"] for c in containers() for p in c.get("ports", ())] == [8750, 5555]
