"""The manifests and the daemon agree, and the checks that say so find each kind of mistake."""

import copy
import os
import re

import pytest
import yaml

from checks import CONFIG_FILE
from daemon import on_cpu, parse_config
from kustomize import KUBERNETES, OVERLAYS, REPOSITORY, overlay, render, the
from planted import PLANTED


@pytest.mark.parametrize("name", OVERLAYS)
def test_manifests_fit_the_daemon(name, findings):
    assert findings(overlay(name)) == []


def _config(manifests):
    return the(manifests, "ConfigMap")["data"]


def test_configs_differ_in_their_devices_alone(facts):
    def rest(name):
        config = parse_config(_config(overlay(name))[CONFIG_FILE])
        config.ClearField("devices")
        if name in ("h200-ipc", "h200-mps"):  # and in how its Unix socket knows who calls
            unix = config.listeners[1]
            assert unix.address == "unix:/run/gemmd/gemmd.sock" and len(unix.credentials) == 1
            unix.ClearField("credentials")
            assert len(config.auth.unix_peers) == 1
            config.auth.ClearField("unix_peers")
        return config

    assert all(rest(name) == rest("cpu") for name in OVERLAYS if name != "try")


def test_the_overlay_to_try_needs_nothing_made_before():
    """It names no object that it does not bring, and its callers need no secret."""
    manifests = overlay("try")
    deployment = the(manifests, "Deployment")["spec"]
    brought = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    for volume in deployment["template"]["spec"]["volumes"]:
        assert "secret" not in volume and "persistentVolumeClaim" not in volume, volume
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in brought
    assert {m["apiVersion"].partition("/")[0] for m in manifests} <= {
        "v1",
        "apps",
        "networking.k8s.io",
        "policy",
    }  # no custom resources
    assert deployment["replicas"] == 1
    config = parse_config(_config(manifests)[CONFIG_FILE])
    assert not any(listener.credentials or listener.HasField("tls") for listener in config.listeners)
    assert not config.HasField("auth")
    container = deployment["template"]["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"  # a loaded image has no registry


def test_the_recipe_for_kind_loads_the_image_that_the_overlay_names():
    text = (REPOSITORY / "deploy/README.md").read_text(encoding="utf-8")
    recipe = text[text.index("### On kind") : text.index("## Install")]
    image = the(overlay("try"), "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert f"docker build -t {image} --target cpu ." in recipe
    assert f"kind load docker-image {image}" in recipe
    assert "kubectl apply -k deploy/kubernetes/overlays/try" in recipe


def test_a_change_of_the_config_changes_the_pods():
    """The ConfigMap's name ends in its content's hash, and the Deployment means it by that name."""
    names = {}
    for name in ("cpu", "h200", "h200-x4", "mig"):
        manifests = overlay(name)
        names[name] = the(manifests, "ConfigMap")["metadata"]["name"]
        volumes = the(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
        assert {"name": names[name]} in [v.get("configMap") for v in volumes]
    assert len(set(names.values())) == 4


@pytest.mark.parametrize("component, name", [("cuda-ipc", "h200-ipc"), ("mps", "h200-mps")])
def test_the_example_client_of_the_node_is_let_in(component, name):
    """Its uid is in the config, its group enters the folder, and the socket is where it looks."""
    path = KUBERNETES / "components" / component / "example-client.yaml"
    client = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    manifests = overlay(name)
    config = parse_config(_config(manifests)[CONFIG_FILE])
    assert client["securityContext"]["runAsUser"] in [peer.uid for peer in config.auth.unix_peers]
    pod = the(manifests, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsGroup"] in client["securityContext"]["supplementalGroups"]
    assert client["volumes"]
    assert all(volume in pod["volumes"] for volume in client["volumes"])
    (container,) = client["containers"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert all(mount in mounts for mount in container["volumeMounts"])
    assert container["command"][-1] in [listener.address for listener in config.listeners]


def test_gemmd_and_its_callers_meet_at_one_mps():
    """The folder of the pipes is the unit's, mounted into both pods, and both are told of it."""
    folder = KUBERNETES / "components/mps"
    unit = (folder / "gemmd-mps.service").read_text(encoding="utf-8")
    client = yaml.safe_load((folder / "example-client.yaml").read_text(encoding="utf-8"))["spec"]
    pod = the(overlay("h200-mps"), "Deployment")["spec"]["template"]["spec"]
    (pipes,) = re.findall(r"^Environment=CUDA_MPS_PIPE_DIRECTORY=(\S+)$", unit, re.M)
    assert pipes == "/run/" + re.search(r"^RuntimeDirectory=(\S+)$", unit, re.M)[1]
    for spec in (pod, client):
        (container,) = spec["containers"]
        assert {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": pipes} in container["env"]
        (volume,) = [one for one in spec["volumes"] if one["name"] == "mps"]
        assert volume["hostPath"]["path"] == pipes
        assert {"name": "mps", "mountPath": pipes} in container["volumeMounts"]
    group = int(re.search(r"^Group=(\d+)$", unit, re.M)[1])
    assert group == pod["securityContext"]["runAsGroup"]
    assert group in client["securityContext"]["supplementalGroups"]


def test_the_component_tracing_opens_the_way_that_its_config_names(tmp_path):
    """To the collector and the DNS alone, and only in an overlay that takes it."""
    component = KUBERNETES / "components/tracing"
    kustomization = tmp_path / "kustomization.yaml"
    paths = [
        os.path.relpath(path, tmp_path.resolve()) for path in (KUBERNETES / "overlays/cpu", component)
    ]
    kustomization.write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [{paths[0]}]\ncomponents: [{paths[1]}]\n"
    )
    text = (component / "kustomization.yaml").read_text(encoding="utf-8")
    comment = "".join(line.removeprefix("#") + "\n" for line in text.splitlines() if line[:1] == "#")
    (tracing,) = re.findall(r"^ +tracing \{.*?^ +\}", comment, re.M | re.S)
    endpoint = parse_config(tracing).tracing.otlp_endpoint
    host, port = endpoint.rsplit(":", 1)

    policy = the(render(tmp_path), "NetworkPolicy")["spec"]
    collector, dns = policy["egress"]
    assert [one["port"] for one in collector["ports"]] == [int(port)]
    name, namespace, _ = host.split(".")
    (to,) = collector["to"]
    assert to["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
    assert to["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": namespace}
    assert [one["port"] for one in dns["ports"]] == [53, 53]
    assert policy["ingress"] == the(overlay("cpu"), "NetworkPolicy")["spec"]["ingress"]


def test_a_fault_of_another_client_restarts_gemmd_itself():
    """Without MPS nobody else's fault reaches it."""
    for name in OVERLAYS:
        pod = the(overlay(name), "Deployment")["spec"]["template"]["spec"]
        assert ("--supervise" in pod["containers"][0]["args"]) == (name == "h200-mps")


def test_the_readme_has_a_row_for_each_overlay():
    text = (REPOSITORY / "deploy/README.md").read_text(encoding="utf-8")
    section = text[text.index("## Overlays") : text.index("## Install")]
    assert sorted(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.M)) == OVERLAYS


def test_the_commands_of_the_readme_exist(facts):
    text = (REPOSITORY / "deploy/README.md").read_text(encoding="utf-8")
    commands = re.findall(r"gemmctl ([a-z]+)((?: --[a-z-]+ [^\s-]\S*)*)", text)
    assert {name for name, _ in commands} >= {"token", "info"}
    for name, flags in commands:
        known = re.findall(r"--[a-z-]+", facts.help_of("gemmctl", name))
        assert known, name
        assert set(re.findall(r"--[a-z-]+", flags)) <= set(known), name


def test_every_component_is_in_an_overlay():
    kinds = {m["kind"] for name in OVERLAYS for m in overlay(name)}
    monitoring = {"ServiceMonitor", "PrometheusRule", "HorizontalPodAutoscaler"}
    assert {"Certificate", "Issuer", *monitoring} <= kinds
    for name in ("h200-ipc", "h200-mps"):
        pod = the(overlay(name), "Deployment")["spec"]["template"]["spec"]
        assert pod["shareProcessNamespace"] is True
        assert not pod.get("hostPID") and not pod.get("hostIPC")


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_reported(mistake, findings):
    plant, sentence = PLANTED[mistake]
    manifests = copy.deepcopy(overlay("production"))
    plant(manifests)
    found = findings(manifests)
    assert any(sentence in line for line in found), found
    kind = mistake.partition(":")[0]
    assert all(line.startswith((kind, "config")) for line in found if sentence in line), found


def test_every_check_has_a_planted_mistake():
    """A check that never fires checks nothing."""
    kinds = "config drain flags references certificate paths devices rights ports metrics"
    assert {mistake.partition(":")[0] for mistake in PLANTED} == set(kinds.split())


def test_gpus_are_left_out_for_a_build_without():
    text = 'devices {\n  name: "cuda:1"\n  tuning_table: "/a/b.json"\n}\n'
    assert on_cpu(text) == 'devices {\n  name: "cpu:1"\n}\n'
