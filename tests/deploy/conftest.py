import pathlib

import pytest

import checks
import checks_metrics
import checks_paths
import checks_ports
import daemon
from kustomize import REPOSITORY

CONTRACT = [
    checks.check_config,
    checks.check_drain,
    checks.check_flags,
    checks.check_references,
    checks.check_certificate_names,
    checks_paths.check_paths,
    checks_paths.check_devices,
    checks_paths.check_rights,
    checks_ports.check_containers,
    checks_ports.check_probes,
    checks_ports.check_services,
    checks_ports.check_policies,
    checks_ports.check_monitors,
    checks_metrics.check_rules,
    checks_metrics.check_monitor_relabelings,
    checks_metrics.check_autoscaler,
]


def pytest_addoption(parser):
    built = REPOSITORY / "build/cpu"
    parser.addoption(
        "--gemmd", default=str(built / "server/gemmd"), help="the daemon that the manifests are for"
    )
    parser.addoption("--gemmctl", default=str(built / "client/cli/gemmctl"))


@pytest.fixture(scope="session")
def facts(request, tmp_path_factory) -> daemon.Facts:
    binaries = [request.config.getoption(name) for name in ("--gemmd", "--gemmctl")]
    missing = [path for path in binaries if not pathlib.Path(path).is_file()]
    assert not missing, f"build first: {missing}"
    return daemon.learn(*binaries, tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="session")
def findings(facts):
    """All that is wrong with some manifests; the config alone when it is wrong itself."""

    def find(manifests):
        deployed = checks.Deployed(manifests, facts)
        wrong = CONTRACT[:1] if deployed.complaint else CONTRACT
        return [sentence for check in wrong for sentence in check(deployed)]

    return find
