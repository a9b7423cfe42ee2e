"""Mistakes to plant in the overlay `production`, each with a part of the sentence that reports it.

What stands before the colon is the check that must find it.
"""

from checks import CONFIG_FILE
from kustomize import of_kind, the


def in_config(old, new):
    def plant(manifests):
        data = the(manifests, "ConfigMap")["data"]
        assert old in data[CONFIG_FILE]
        data[CONFIG_FILE] = data[CONFIG_FILE].replace(old, new)

    return plant


def at(kind, *path, value):
    """One place of the first object of a kind set to a value; None takes it out."""

    def plant(manifests):
        place = of_kind(manifests, kind)[0]
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return plant


def in_pod(*path, value):
    return at("Deployment", "spec", "template", "spec", *path, value=value)


def in_container(*path, value):
    return in_pod("containers", 0, *path, value=value)


PLANTED = {
    "config: a field that does not exist": (
        in_config("notice_ms", "notice_millis"),
        "notice_millis",
    ),
    "config: a value of the wrong type": (
        in_config("limit_ms: 20000", 'limit_ms: "20s"'),
        "config: ",
    ),
    "config: a tenant that nobody declares": (
        in_config('tenant: "batch"', 'tenant: "bach"'),
        "bach",
    ),
    "config: plaintext beyond loopback": (in_config("health_only: true", ""), "8472"),
    "drain: a longer limit": (
        in_config("limit_ms: 20000", "limit_ms: 30000"),
        "terminationGracePeriodSeconds is 35",
    ),
    "drain: a shorter grace": (
        in_pod("terminationGracePeriodSeconds", value=30),
        "terminationGracePeriodSeconds is 30",
    ),
    "drain: a longer preStop": (
        in_container("lifecycle", "preStop", "sleep", "seconds", value=10),
        "5 s are 40",
    ),
    "drain: no preStop": (in_container("lifecycle", value=None), "no preStop"),
    "drain: hasty liveness": (
        in_container("livenessProbe", "failureThreshold", value=2),
        "liveness gives up after 20 s",
    ),
    "flags: one that does not exist": (
        in_container("args", 0, value="--configuration"),
        "no --configuration",
    ),
    "flags: of gemmctl": (
        in_container(
            "livenessProbe", value={"exec": {"command": ["gemmctl", "health", "--srever", "x"]}}
        ),
        "gemmctl health has no --srever",
    ),
    "flags: a program that is not there": (
        in_container("livenessProbe", value={"exec": {"command": ["curl", "x"]}}),
        "curl is no program",
    ),
    "flags: another entry point": (in_container("command", value=["/bin/gemmd"]), "entry point"),
    "references: service account": (
        in_pod("serviceAccountName", value="gemm"),
        "no ServiceAccount gemm",
    ),
    "references: a ConfigMap": (
        in_pod("volumes", 0, "configMap", "name", value="gemmd-config"),
        "no ConfigMap",
    ),
    "references: a Secret": (
        in_pod("volumes", 1, "secret", "secretName", value="tls"),
        "the Secret tls",
    ),
    "references: a budget of no pod": (
        at("PodDisruptionBudget", "spec", "selector", "matchLabels", value={"app": "gemmd"}),
        "PodDisruptionBudget gemmd selects no pod",
    ),
    "references: a policy of no pod": (
        at("NetworkPolicy", "spec", "podSelector", value={"matchLabels": {"app": "g"}}),
        "NetworkPolicy gemmd selects no pod",
    ),
    "references: a Service of no pod": (
        at("Service", "spec", "selector", value={"app": "gemmd"}),
        "selects no pod",
    ),
    "references: spread over nothing": (
        in_pod("topologySpreadConstraints", 0, "labelSelector", value={"matchLabels": {"a": "b"}}),
        "topology spread",
    ),
    "references: scaling nothing": (
        at("HorizontalPodAutoscaler", "spec", "scaleTargetRef", "name", value="gemm"),
        "Deployment gemm is not there",
    ),
    "references: two who scale": (
        at("Deployment", "spec", "replicas", value=2),
        "so does the autoscaler",
    ),
    "references: an issuer": (
        at("Certificate", "spec", "issuerRef", "name", value="other"),
        "no Issuer other",
    ),
    "certificate: a name of no Service": (
        at("Service", "metadata", "name", value="gemm"),
        "gemm.gemmd.svc is missing",
    ),
    "paths: a certificate elsewhere": (
        in_config("/etc/gemmd-tls/tls.crt", "/etc/gemmd/tls.crt"),
        "tls.certificate_file",
    ),
    "paths: a key that the Secret has not": (
        in_pod("volumes", 1, "secret", "items", 2, value={"key": "ca", "path": "ca.crt"}),
        "tls.client_ca_file",
    ),
    "paths: a mount elsewhere": (
        in_container("volumeMounts", 2, "mountPath", value="/etc/tokens"),
        "/etc/gemmd-tokens/tokens",
    ),
    "paths: by subPath": (in_container("volumeMounts", 1, "subPath", value="tls"), "subPath"),
    "paths: a socket on the read-only root": (
        in_config("/run/gemmd/share.sock", "/run/share.sock"),
        "share.socket_path",
    ),
    "paths: a folder mounted read-only": (
        in_container("volumeMounts", 3, "readOnly", value=True),
        "may write",
    ),
    "paths: a table that the image has not": (in_config("h200.json", "b200.json"), "b200.json"),
    "paths: a config that is not mounted": (
        in_container("args", 1, value="/etc/gemmd.textproto"),
        "--config",
    ),
    "devices: more GPUs than devices": (
        in_container("resources", "limits", "nvidia.com/gpu", value="2"),
        "asks for 2",
    ),
    "devices: no GPU": (
        in_container("resources", "limits", "nvidia.com/gpu", value=None),
        "asks for 0",
    ),
    "devices: the CPU's image": (
        in_container("image", value="gemmd:0.1.0-cpu"),
        "gemmd:0.1.0-cpu with 1 GPUs",
    ),
    "rights: root": (in_pod("securityContext", "runAsUser", value=0), "runAsUser 8470"),
    "rights: may be root": (in_pod("securityContext", "runAsNonRoot", value=False), "runAsNonRoot"),
    "rights: a writable root": (
        in_container("securityContext", "readOnlyRootFilesystem", value=False),
        "readOnlyRoot",
    ),
    "rights: a capability": (
        in_container("securityContext", "capabilities", "add", value=["SYS_ADMIN"]),
        "capabilities",
    ),
    "rights: privileged": (
        in_container("securityContext", "privileged", value=True),
        "not privileged",
    ),
    "rights: no seccomp": (
        in_pod("securityContext", "seccompProfile", "type", value="Unconfined"),
        "seccomp",
    ),
    "rights: a token": (
        in_pod("automountServiceAccountToken", value=True),
        "service account token",
    ),
    "rights: the node's processes": (in_pod("hostPID", value=True), "hostPID"),
    "rights: the node's network": (in_pod("hostNetwork", value=True), "host's network"),
    "rights: unbounded memory": (
        in_container("resources", "limits", "memory", value=None),
        "memory limit",
    ),
    "ports: the listener moved": (in_config("0.0.0.0:8470", "0.0.0.0:8480"), "serves grpc at 8480"),
    "ports: metrics moved": (in_config("0.0.0.0:8471", "0.0.0.0:9090"), "serves metrics at 9090"),
    "ports: metrics for the pod alone": (
        in_config("0.0.0.0:8471", "127.0.0.1:8471"),
        "serves nothing at 8471",
    ),
    "ports: the container's": (
        in_container("ports", 2, "containerPort", value=8473),
        "serves nothing at 8473",
    ),
    "ports: a probe at TLS": (
        in_container("readinessProbe", "grpc", "port", value=8470),
        "readinessProbe asks 8470",
    ),
    "ports: a probe of a service": (
        in_container("readinessProbe", "grpc", "service", value="gemmd"),
        "the service gemmd",
    ),
    "ports: a probe by HTTP": (
        in_container("livenessProbe", value={"httpGet": {"port": 8471}}),
        "no gRPC livenessProbe",
    ),
    "ports: a Service's target": (
        at("Service", "spec", "ports", 0, "targetPort", value="metrics"),
        "calls 8470 grpc",
    ),
    "ports: a Service's port": (
        at("Service", "spec", "ports", 0, "port", value=80),
        "calls 80 grpc",
    ),
    "ports: no headless Service": (
        at("Service", "spec", "clusterIP", value="None"),
        "one Service must be headless",
    ),
    "ports: a policy's": (
        at("NetworkPolicy", "spec", "ingress", 0, "ports", 0, "port", value=8480),
        "opens 8480",
    ),
    "ports: a policy for health": (
        at("NetworkPolicy", "spec", "ingress", 0, "ports", 0, "port", value=8472),
        "health",
    ),
    "ports: a policy for everybody": (
        at("NetworkPolicy", "spec", "ingress", 0, "from", value=[]),
        "lets in everybody",
    ),
    "ports: a policy that lets out": (
        at("NetworkPolicy", "spec", "egress", value=[{}]),
        "lets something out",
    ),
    "ports: a monitor's": (
        at("ServiceMonitor", "spec", "endpoints", 0, "port", value="prometheus"),
        "finds 0 Services",
    ),
    "ports: a monitor of clients": (
        at("ServiceMonitor", "spec", "endpoints", 0, "port", value="grpc"),
        "finds 2 Services",
    ),
    "ports: a monitor's path": (
        at("ServiceMonitor", "spec", "endpoints", 0, "path", value="/stats"),
        "asks /stats",
    ),
    "metrics: in a rule": (
        at("PrometheusRule", "spec", "groups", 0, "rules", 0, "expr", value="gemmd_sessoins > 1"),
        "gemmd_sessoins",
    ),
    "metrics: in a relabeling": (
        at(
            "ServiceMonitor",
            "spec",
            "endpoints",
            0,
            "metricRelabelings",
            value=[{"sourceLabels": ["__name__"], "regex": "gemmd_op_total", "action": "drop"}],
        ),
        "gemmd_op_total",
    ),
    "metrics: no alert at all": (at("PrometheusRule", "spec", "groups", value=[]), "no alert"),
    "metrics: the autoscaler's": (
        at(
            "HorizontalPodAutoscaler",
            "spec",
            "metrics",
            0,
            "pods",
            "metric",
            "name",
            value="gemmd_queue_seconds",
        ),
        "for which the adapter has no rule",
    ),
}
