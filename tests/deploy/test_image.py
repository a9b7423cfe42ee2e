"""The image for real, without a container engine.

The Dockerfile's stages run in a fresh Debian 12, and the daemon in what comes out: as its user,
with no capability, and nothing writable but what is mounted. With a CUDA toolkit on this machine
the image for GPUs is built as well. Takes minutes, root, and the distribution's archive.
GEMMD_IMAGE_KEEP names a folder to leave the images' trees in, GEMMD_IMAGE_ROOT such a folder, to
test them again.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from container import Spec, container_argv
from daemon import TOKEN, write_secrets
from dockerfile import Dockerfile, health_command
from engine import RUN_FOLDER, Container, ask_until, entry_point, of_image, started
from image import Builder, Image, make_context
from kustomize import OVERLAYS, REPOSITORY, overlay, the

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot and mounts")
TOOLKIT = pathlib.Path("/usr/local/cuda-13.0")  # where the Dockerfile takes it from its image
STAGES = ["cpu", "cuda"]
MATMUL = ("gemmctl", "matmul", "A.npy", "B.npy", "-o", "D.npy", "--verify")


@pytest.fixture(scope="module")
def dockerfile():
    return Dockerfile(REPOSITORY / "Dockerfile")


@pytest.fixture(scope="module")
def images(dockerfile, tmp_path_factory) -> dict[str, Image]:
    if kept := os.environ.get("GEMMD_IMAGE_ROOT"):
        folders = {stage: pathlib.Path(kept) / stage for stage in STAGES}
        return {s: Image(folder, stage=s) for s, folder in folders.items() if folder.is_dir()}
    work = tmp_path_factory.mktemp("image")
    debian, nvidia = work / "debian", work / "nvidia"
    assert shutil.which("debootstrap"), "scripts/packages.sh installs debootstrap"
    argv = ["debootstrap", "--variant=minbase", "bookworm", str(debian)]
    subprocess.run(argv, check=True, timeout=1800)
    bases = {dockerfile.chain("cpu")[0].base: debian, dockerfile.stages["toolkit"].base: nvidia}
    (nvidia / "usr/local").mkdir(parents=True)
    (nvidia / "usr/local" / TOOLKIT.name).symlink_to(TOOLKIT)
    cache = _ccache_folder()
    binds = {"/root/.cache/ccache": cache} if cache else {}
    env = {"JOBS": os.environ.get("JOBS", "2")}
    builder = Builder(
        dockerfile, make_context(REPOSITORY, work / "context"), work, bases, binds, env
    )
    built = builder.build(*(STAGES if TOOLKIT.is_dir() else ["cpu"]))
    if keep := os.environ.get("GEMMD_IMAGE_KEEP"):
        for stage, image in built.items():
            shutil.rmtree(pathlib.Path(keep) / stage, ignore_errors=True)
            subprocess.run(["cp", "-a", str(image.root), f"{keep}/{stage}"], check=True)
    return built


@pytest.fixture(params=STAGES)
def image(request, images) -> Image:
    if request.param not in images:
        pytest.skip(f"no toolkit at {TOOLKIT}")
    return images[request.param]


def _ccache_folder() -> str:
    """This machine's cache of compiled objects, where there is one: an hour becomes minutes."""
    if not shutil.which("ccache"):
        return ""
    argv = ["ccache", "--get-config", "cache_dir"]
    folder = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return folder if os.path.isdir(folder) else ""


def save_operands(container: Container) -> None:
    """Two matrices in the daemon's own folder, which is the only one it may write to."""
    folder = pathlib.Path(f"/proc/{container.pid}/root/run/gemmd")
    random = np.random.default_rng(7)
    for name, shape in (("A", (48, 64)), ("B", (64, 32))):
        np.save(folder / f"{name}.npy", random.standard_normal(shape).astype(np.float32))
        os.chown(folder / f"{name}.npy", 8470, 8470)


def test_the_image_holds_the_programs_and_no_compiler(image):
    assert sorted(p.name for p in (image.root / "usr/local/bin").iterdir()) == ["gemmctl", "gemmd"]
    for tool in ("g++", "cmake", "git", "python3"):
        assert not (image.root / "usr/bin" / tool).exists()
    times = {p.stat().st_mtime for p in (image.root / "usr/local/bin").iterdir()}
    assert times == {0.0}  # SOURCE_DATE_EPOCH, which the file leaves at 0
    sections = subprocess.run(
        ["objdump", "-h", str(image.root / "usr/local/bin/gemmd")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ".debug_info" not in sections


def test_the_daemon_serves_as_its_user_on_a_read_only_root(dockerfile, image, tmp_path):
    health = health_command(dockerfile.last(image.stage, "HEALTHCHECK"))
    with started(of_image(dockerfile, image), tmp_path / "log") as container:
        healthy = ask_until(container, health)
        assert (healthy.returncode, healthy.stdout) == (0, "serving\n"), healthy.stderr
        status = container.status()
        assert status["Uid"].split() == ["8470"] * 4 and status["Gid"].split() == ["8470"] * 4
        assert (
            status["NoNewPrivs"] == "1"
            and int(status["CapBnd"], 16) == 0
            and int(status["CapEff"], 16) == 0
        )
        for path in ("/etc/x", "/usr/local/bin/x", "/tmp/x", "/x"):
            refused = container.run("touch", path, uid=0)  # even root's file system is read-only
            assert refused.returncode != 0 and "Read-only file system" in refused.stderr
        save_operands(container)
        server = ["--server", health[health.index("--server") + 1]]
        done = container.run(*MATMUL, *server)
        assert done.returncode == 0, done.stderr
        assert "verify" in done.stdout
        assert container.stop() == 0
    assert "drained answered_all=true" in (tmp_path / "log").read_text(encoding="utf-8")


def test_the_daemon_does_not_start_where_it_may_not_write_its_socket(dockerfile, image, tmp_path):
    """The test above shows something: without the folder the read-only root is in the way."""
    spec = of_image(dockerfile, image, tmpfs={})
    done = subprocess.run(
        container_argv(spec), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "/run/gemmd/" in done.stderr and "Read-only file system" in done.stderr


@pytest.fixture
def pod_folders(tmp_path):
    """What the overlay `cpu` mounts, as Secret volumes with fsGroup are: the group reads."""
    config, secrets = tmp_path / "config", tmp_path / "secrets"
    config.mkdir()
    secrets.mkdir()
    write_secrets(secrets)
    (config / "gemmd.textproto").write_text(
        the(overlay("cpu"), "ConfigMap")["data"]["gemmd.textproto"], encoding="utf-8"
    )
    for file in secrets.iterdir():
        os.chown(file, 0, 8470)
        file.chmod(0o440)
    return {"config": config, "tls": secrets, "tokens": secrets}


def of_pod(dockerfile: Dockerfile, image: Image, folders: dict[str, pathlib.Path]) -> Spec:
    """The container as the overlay `cpu` has it: its mounts, its user, its arguments."""
    template = the(overlay("cpu"), "Deployment")["spec"]["template"]["spec"]
    (container,) = template["containers"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    run = mounts.pop("run")
    user = template["securityContext"]
    argv = entry_point(dockerfile, image) + container["args"]
    return of_image(
        dockerfile,
        image,
        argv=argv,
        uid=user["runAsUser"],
        gid=user["runAsGroup"],
        tmpfs={run: RUN_FOLDER[run]},
        binds={path: f"{folders[name]}:ro" for name, path in mounts.items()},
    )


def probe(container: Container, what: str, port: int) -> str:
    argv = [
        "nsenter",
        "--target",
        str(container.pid),
        "--net",
        sys.executable,
        str(pathlib.Path(__file__).with_name("probe.py")),
    ]
    argv += [what, str(port)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + container.log.read_text(encoding="utf-8")
    return done.stdout


def test_the_pod_answers_its_probes_and_clients_with_a_token(
    dockerfile, image, pod_folders, tmp_path
):
    (manifest,) = the(overlay("cpu"), "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in manifest["ports"]}
    with started(of_pod(dockerfile, image, pod_folders), tmp_path / "log") as container:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probe(container, "grpc", manifest[name]["grpc"]["port"]) == "serving\n"
        assert "gemmd_build_info{" in probe(container, "metrics", ports["metrics"])
        save_operands(container)
        folder = pathlib.Path(f"/proc/{container.pid}/root/run/gemmd")
        (folder / "token").write_text(TOKEN, encoding="ascii")
        os.chown(folder / "token", 8470, 8470)
        (folder / "token").chmod(0o600)
        matmul = [*MATMUL, "--server", f"127.0.0.1:{ports['grpc']}"]
        tls = ["--tls-ca", "/etc/gemmd-tls/ca.crt", "--tls-server-name", "gemmd.gemmd.svc"]
        done = container.run(*matmul, *tls, "--token-file", "token")
        assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text(encoding="utf-8")
        nobody = container.run(*matmul, *tls)
        assert nobody.returncode != 0 and "NO_CREDENTIALS" in nobody.stderr
        assert container.run(*matmul).returncode != 0  # plaintext
        # What `kubectl exec` does: an admin by the daemon's own uid.
        unix = ["--server", "unix:/run/gemmd/gemmd.sock"]
        assert container.run("gemmctl", "sessions", *unix).returncode == 0
        assert container.stop() == 0


def test_the_pod_does_not_start_with_a_key_that_it_cannot_read(dockerfile, image, pod_folders):
    """fsGroup and defaultMode are what makes the key readable."""
    (pod_folders["tls"] / "tls.key").chmod(0o400)
    spec = of_pod(dockerfile, image, pod_folders)
    done = subprocess.run(
        container_argv(spec), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (1, 2)
    assert "tls.key" in done.stderr


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_image_of_an_overlay_takes_its_config(dockerfile, images, pod_folders, tmp_path, name):
    """With the devices that only a build with CUDA knows."""
    (container,) = the(overlay(name), "Deployment")["spec"]["template"]["spec"]["containers"]
    stage = container["image"].rpartition("-")[2]
    if stage not in images:
        pytest.skip(f"no toolkit at {TOOLKIT}")
    text = the(overlay(name), "ConfigMap")["data"]["gemmd.textproto"]
    (pod_folders["config"] / "gemmd.textproto").write_text(text, encoding="utf-8")
    spec = of_pod(dockerfile, images[stage], pod_folders)
    spec = dataclasses.replace(spec, argv=[*spec.argv, "--check"])
    argv = container_argv(spec)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
