"""Kubernetes' own schemas and those of the custom resources, strict: an unknown field is an error.

kubernetes-validate brings Kubernetes'. The custom resources' are those of the models that cloudcoil
generates from the operators' CustomResourceDefinitions, closed against fields they do not name.
"""

from __future__ import annotations

import functools

import jsonschema
import kubernetes_validate
from cloudcoil.models.cert_manager import v1 as cert_manager
from cloudcoil.models.prometheus_operator import v1 as prometheus_operator

# The oldest Kubernetes that the manifests are for (preStop's sleep is on by default from it on) and
# the newest that there is a schema of.
VERSIONS = ("1.30", kubernetes_validate.latest_version())

CUSTOM = {
    ("cert-manager.io/v1", "Certificate"): cert_manager.Certificate,
    ("cert-manager.io/v1", "Issuer"): cert_manager.Issuer,
    ("monitoring.coreos.com/v1", "PrometheusRule"): prometheus_operator.PrometheusRule,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): prometheus_operator.ServiceMonitor,
}


def _closed(schema):
    """No field that is not named, and no null: the API server drops those."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema if part != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: _closed(value) for key, value in schema.items() if key not in ("default", "title")
    }
    if (
        "properties" in schema
        and isinstance(schema["properties"], dict)
        and schema.get("type") == "object"
    ):
        closed["properties"] = {key: _closed(value) for key, value in schema["properties"].items()}
        closed.setdefault("additionalProperties", False)
    return closed


@functools.cache
def _custom_schema(kind: tuple[str, str]):
    schema = _closed(CUSTOM[kind].model_json_schema(by_alias=True))
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(schema)


def problems(manifest: dict) -> list[str]:
    kind = (manifest["apiVersion"], manifest["kind"])
    where = f"{manifest['kind']} {manifest['metadata'].get('name')}"
    if kind in CUSTOM:
        return [
            f"{where}: {error.json_path}: {error.message}"
            for error in _custom_schema(kind).iter_errors(manifest)
        ]
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            found.append(f"{where}: {path}: {error.message} (Kubernetes {version})")
        except (
            kubernetes_validate.SchemaNotFoundError,
            kubernetes_validate.InvalidSchemaError,
        ) as error:
            found.append(f"{where}: {error}")
    return found
