"""Kubernetes, cert-manager and the Prometheus operator know every object of an overlay."""

import copy

import pytest
import yaml

import schemas
from kustomize import KUBERNETES, OVERLAYS, kubectls, of_kind, overlay, render, the


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_object_fits_its_schema(name):
    manifests = overlay(name)
    assert manifests
    assert [problem for manifest in manifests for problem in schemas.problems(manifest)] == []


@pytest.mark.parametrize(
    "path", sorted(KUBERNETES.glob("components/*/example-*.yaml")), ids=lambda path: path.name
)
def test_examples_fit_their_schema(path):
    assert [
        p
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        for p in schemas.problems(manifest)
    ] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_kubectls_render_the_same(name):
    rendered = [render(KUBERNETES / "overlays" / name, kubectl) for kubectl in kubectls()]
    assert all(manifests == rendered[0] for manifests in rendered)


def test_every_overlay_is_its_own_namespace_and_whole():
    assert {"cpu", "h200", "h200-x4", "mig", "h200-ipc", "h200-mps", "production"} <= set(OVERLAYS)
    for name in OVERLAYS:
        manifests = overlay(name)
        assert {m["metadata"].get("namespace", "gemmd") for m in manifests} == {"gemmd"}
        kinds = {m["kind"] for m in manifests}
        assert {
            "Namespace",
            "Deployment",
            "Service",
            "ConfigMap",
            "NetworkPolicy",
            "PodDisruptionBudget",
        } <= kinds


def _changed(kind, path, value):
    """The object of that kind in `production`, with one place changed."""
    manifest = copy.deepcopy(of_kind(overlay("production"), kind)[0])
    place = manifest
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return manifest


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)


@pytest.mark.parametrize(
    "kind, path, value",
    [
        ("Deployment", (*POD, "terminationGraceSeconds"), 3),
        ("Deployment", (*CONTAINER, "securityContext", "readOnlyRootFileSystem"), True),
        ("Deployment", (*CONTAINER, "livenessProbe", "grpc", "prot"), 1),
        ("Deployment", (*CONTAINER, "ports", 0, "containerPort"), "grpc"),
        ("Deployment", ("spec", "selector"), None),
        ("NetworkPolicy", ("spec", "ingress", 0, "port"), []),
        ("HorizontalPodAutoscaler", ("spec", "metrics", 0, "pods", "metric", "names"), "x"),
        ("PodDisruptionBudget", ("spec", "maxUnavailables"), 1),
        ("ServiceMonitor", ("spec", "endpoints", 0, "intervall"), "15s"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "15 seconds"),
        ("ServiceMonitor", ("spec", "selector"), None),
        (
            "PrometheusRule",
            ("spec", "groups"),
            [{"name": "a", "rules": [{"alert": "A", "expression": "1"}]}],
        ),
        (
            "PrometheusRule",
            ("spec", "groups"),
            [{"name": "a", "rules": [{"alert": "A", "expr": "1", "for": "5 min"}]}],
        ),
        ("Certificate", ("spec", "secret"), "x"),
        ("Certificate", ("spec", "issuerRef"), None),
        ("Certificate", ("spec", "usages"), ["server-auth"]),
        ("Issuer", ("spec", "self"), {}),
    ],
)
def test_a_mistake_is_found(kind, path, value):
    assert schemas.problems(_changed(kind, path, value))


def test_an_unknown_kind_is_found():
    manifest = the(overlay("cpu"), "Deployment")
    assert schemas.problems({**manifest, "apiVersion": "apps/v2"})
    assert schemas.problems({**manifest, "apiVersion": "apps/v1beta1"})
