"""Paths of the config against mounts and image; devices against GPUs; what a container may do."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from checks import CONFIG_FILE, SECRETS, Deployed
from kustomize import REPOSITORY

# deploy/tuning in the image: scripts/container-build.sh puts it below /opt/gemmd, and the
# Dockerfile that to /usr/local.
TUNING = "/usr/local/share/gemmd/tuning"


def _keys(volume: dict, deployed: Deployed) -> set[str]:
    """The files that a volume shows."""
    if "configMap" in volume:
        return (
            {CONFIG_FILE}
            if "items" not in volume["configMap"]
            else {i["path"] for i in volume["configMap"]["items"]}
        )
    items = volume["secret"].get("items")
    known = SECRETS.get(volume["secret"]["secretName"], set())
    return {i["path"] for i in items if i["key"] in known} if items else known


def _check_read(deployed: Deployed, field: str, path: str) -> Iterator[str]:
    mount = deployed.mount_of(path)
    if mount is None:
        yield f"paths: {field} {path} is under no mount"
        return
    volume = deployed.volume(mount)
    name = str(pathlib.PurePosixPath(path).relative_to(mount["mountPath"]))
    if not ("secret" in volume or "configMap" in volume) or name not in _keys(volume, deployed):
        yield f"paths: {field} {path}: volume {mount['name']} has no {name}"
    if "subPath" in mount:
        yield f"paths: {field} {path} is mounted by subPath and would never change"


def _check_socket(deployed: Deployed, field: str, path: str) -> Iterator[str]:
    mount = deployed.mount_of(path)
    volume = deployed.volume(mount) if mount else {}
    if not ("emptyDir" in volume or "hostPath" in volume) or mount.get("readOnly"):
        yield f"paths: {field} {path} is in no folder that the container may write to"


def check_paths(deployed: Deployed) -> Iterator[str]:
    config = deployed.config
    for index, listener in enumerate(config.listeners):
        if listener.address.startswith("unix:"):
            yield from _check_socket(
                deployed, f"listeners[{index}].address", listener.address.removeprefix("unix:")
            )
        for field in ("certificate_file", "key_file", "client_ca_file"):
            if path := getattr(listener.tls, field):
                yield from _check_read(deployed, f"listeners[{index}].tls.{field}", path)
    if path := config.auth.token_file:
        yield from _check_read(deployed, "auth.token_file", path)
    if not config.share.disabled:
        yield from _check_socket(deployed, "share.socket_path", config.share.socket_path)
    for index, device in enumerate(config.devices):
        if not (path := device.tuning_table):
            continue
        folder, _, name = path.rpartition("/")
        if folder != TUNING or not (REPOSITORY / "deploy/tuning" / name).is_file():
            yield f"paths: devices[{index}].tuning_table {path} is not in the image"
    arguments = deployed.container().get("args", [])
    if "--config" not in arguments:
        yield "paths: no --config"
        return
    yield from _check_read(deployed, "--config", arguments[arguments.index("--config") + 1])


def check_devices(deployed: Deployed) -> Iterator[str]:
    """As many CUDA devices as GPUs; none of them without one."""
    limits = deployed.container()["resources"]["limits"]
    gpus = sum(int(count) for name, count in limits.items() if name.startswith("nvidia.com/"))
    devices = [device.name for device in deployed.config.devices if device.name.startswith("cuda:")]
    if devices != [f"cuda:{index}" for index in range(gpus)]:
        yield f"devices: the config has {devices or 'no GPU'}, the pod asks for {gpus}"
    image = deployed.container()["image"]
    if image.endswith("-cuda") != bool(gpus):
        yield f"devices: {image} with {gpus} GPUs"


def check_rights(deployed: Deployed) -> Iterator[str]:
    pod, container = deployed.pod(), deployed.container()
    of_pod, of_container = pod.get("securityContext", {}), container.get("securityContext", {})
    wanted = {
        "runAsNonRoot": of_pod.get("runAsNonRoot") is True,
        "runAsUser 8470": of_pod.get("runAsUser") == 8470 and "runAsUser" not in of_container,
        "fsGroup 8470": of_pod.get("fsGroup") == 8470,
        "seccompProfile RuntimeDefault": of_pod.get("seccompProfile", {}).get("type")
        == "RuntimeDefault",
        "readOnlyRootFilesystem": of_container.get("readOnlyRootFilesystem") is True,
        "allowPrivilegeEscalation false": of_container.get("allowPrivilegeEscalation") is False,
        "capabilities drop ALL": of_container.get("capabilities") == {"drop": ["ALL"]},
        "not privileged": not of_container.get("privileged", False),
        "no service account token": pod.get("automountServiceAccountToken") is False,
        "no service links": pod.get("enableServiceLinks") is False,
        "not the host's network": not pod.get("hostNetwork", False),
        "a memory limit": "memory" in container.get("resources", {}).get("limits", {}),
    }
    for what, held in wanted.items():
        if not held:
            yield f"rights: {what}, it should be"
    # The node's namespaces and folders are the CUDA IPC component's, and the namespace says so.
    (level,) = [
        m["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for m in deployed.manifests
        if m["kind"] == "Namespace"
    ]
    node = [key for key in ("hostIPC", "hostPID") if pod.get(key)] + [
        v["name"] for v in pod["volumes"] if "hostPath" in v
    ]
    if bool(node) != (level == "privileged"):
        yield f"rights: pod security {level} with {node or 'nothing'} of the node"
