"""The Dockerfile reads right, what it copies is there, and its image installs what is loaded."""

import json
import pathlib
import re
import subprocess

import pytest

from dockerfile import Dockerfile, health_command
from image import context_files
from kustomize import REPOSITORY

RUNTIME = REPOSITORY / "scripts/container-runtime.sh"


@pytest.fixture(scope="module")
def dockerfile():
    return Dockerfile(REPOSITORY / "Dockerfile")


def test_it_has_an_image_for_gpus_and_one_for_cpus(dockerfile):
    assert dockerfile.target() == "cuda"
    assert [stage.base for stage in dockerfile.chain("cpu")] == ["debian:12-slim", "runtime"]
    assert dockerfile.chain("cuda")[0].base == "debian:12-slim"
    assert (
        dockerfile.stages["toolkit"].base.startswith("nvidia/cuda:")
        and "-devel-" in dockerfile.stages["toolkit"].base
    )


def test_a_build_argument_replaces_an_image():
    other = Dockerfile(REPOSITORY / "Dockerfile", {"DEBIAN": "mirror/debian:12", "VERSION": "9"})
    assert other.chain("cpu")[0].base == "mirror/debian:12"
    assert 'version="9"' in other.last("cpu", "LABEL").value


def test_each_source_of_a_copy_is_there_after_dockerignore(dockerfile):
    files = context_files(REPOSITORY)
    for stage in dockerfile.stages.values():
        for copy in (i for i in stage.instructions if i.name == "COPY"):
            *sources, _ = copy.words()
            if "from" in copy.flags:
                assert copy.flags["from"] in dockerfile.stages
                continue
            for source in sources:
                assert any(f == source or f.startswith(source + "/") for f in files), (
                    f"line {copy.line}: no {source}"
                )


def test_nothing_is_sent_to_the_engine_that_no_step_copies(dockerfile):
    copied = [
        s
        for stage in dockerfile.stages.values()
        for i in stage.instructions
        if i.name == "COPY" and "from" not in i.flags
        for s in i.words()[:-1]
    ]
    unused = {
        f
        for f in context_files(REPOSITORY)
        if not any(f == s or f.startswith(s + "/") for s in copied)
    }
    assert unused <= {"Dockerfile", ".dockerignore"}  # the engine reads those itself


def test_packages_come_before_sources(dockerfile):
    """A change of a source must not install packages again."""
    names = [stage.name for stage in dockerfile.chain("build-cpu")]
    assert names == ["packages", "sources", "build-cpu"]
    copied = [
        w
        for i in dockerfile.stages["packages"].instructions
        if i.name == "COPY"
        for w in i.words()[:-1]
    ]
    assert all(source.startswith("scripts/") for source in copied)
    assert not dockerfile.all("runtime", "COPY")[0].words()[0].startswith(("server", "kernels"))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_it_runs_as_a_user_without_a_name_to_look_up(dockerfile, target):
    uid, _, gid = dockerfile.last(target, "USER").value.partition(":")
    assert int(uid) > 0 and uid == gid == "8470"
    runtime = RUNTIME.read_text(encoding="utf-8")
    assert f"--gid {gid} gemmd" in runtime and f"--uid {uid} " in runtime


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_it_starts_asks_and_stops_the_daemon_in_ways_that_exist(dockerfile, target, facts):
    assert json.loads(dockerfile.last(target, "ENTRYPOINT").value) == ["gemmd"]
    arguments = json.loads(dockerfile.last(target, "CMD").value)
    assert set(a for a in arguments if a.startswith("--")) <= facts.flags
    config = REPOSITORY / "scripts/container.textproto"
    copy = next(
        i for i in dockerfile.all(target, "COPY") if i.words()[0] == "scripts/container.textproto"
    )
    assert copy.words()[1] == arguments[arguments.index("--config") + 1]
    text = config.read_text(encoding="utf-8")
    assert facts.check(text, {})[0] == ""
    program, command, *flags = health_command(dockerfile.last(target, "HEALTHCHECK"))
    assert (program, command) == ("gemmctl", "health")
    assert set(f for f in flags if f.startswith("--")) <= set(
        re.findall(r"--[a-z-]+", facts.help_of("gemmctl", "health"))
    )
    assert f'"{flags[flags.index("--server") + 1]}"' in text
    assert dockerfile.last(target, "STOPSIGNAL").value == "SIGTERM"


def test_its_labels_say_which_version_it_is(dockerfile):
    version = re.search(
        r"project\(gemmd VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text(encoding="utf-8")
    )[1]
    labels = dockerfile.last("cuda", "LABEL").words()
    assert f"org.opencontainers.image.version={version}" in labels
    assert any(label.startswith("org.opencontainers.image.title=") for label in labels)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_it_carries_its_licence(dockerfile, target):
    assert any(i.words()[0] == "LICENSE" for i in dockerfile.all(target, "COPY"))
    assert "org.opencontainers.image.licenses=Apache-2.0" in dockerfile.last(target, "LABEL").words()


def _runtime_packages() -> list[str]:
    return re.search(r"^packages=\(\n(.*?)\n\)", RUNTIME.read_text(encoding="utf-8"), re.M | re.S)[
        1
    ].split()


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _owners(libraries: set[str]) -> dict[str, str]:
    """The package of each library that the loader finds by its name."""
    cache = _output("/sbin/ldconfig", "-p")
    paths = {}
    for library in libraries:
        found = re.search(rf"^\s*{re.escape(library)} \(libc6,x86-64.*\) => (\S+)$", cache, re.M)
        assert found, f"the loader knows no {library}"
        path = str(pathlib.Path(found[1]).resolve())
        paths |= {path: library, path.removeprefix("/usr"): library}  # /lib is a link to /usr/lib
    lines = _output("dpkg-query", "-S", *paths).splitlines()
    return {paths[line.split(": ", 1)[1]]: line.split(":")[0] for line in lines}


def _closure(packages: list[str]) -> set[str]:
    lines = _output("dpkg-query", "-W", "-f=${Package}\t${Pre-Depends}, ${Depends}\n").splitlines()
    needs = dict(line.split("\t", 1) for line in lines)
    found, wanted = set(), list(packages)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += re.findall(r"(?:^|, )([a-z0-9.+-]+)", needs.get(name, ""))
    return found


@pytest.mark.skipif(
    'VERSION_ID="12"' not in pathlib.Path("/etc/os-release").read_text(encoding="utf-8"),
    reason="the image is Debian 12's, and its packages have their names there",
)
def test_the_image_installs_what_the_programs_load(facts):
    """No library is missing, and none is installed for nothing."""
    dump = _output("objdump", "-p", facts.gemmd) + _output("objdump", "-p", facts.gemmctl)
    needed = set(re.findall(r"NEEDED\s+(\S+)", dump))
    owners = _owners(needed)
    assert owners.keys() == needed
    listed = _runtime_packages()
    base = {"libc6", "libgcc-s1", "libstdc++6"}  # of every Debian image
    closure = _closure(listed) | base
    assert {library for library, owner in owners.items() if owner not in closure} == set()
    assert set(listed) - set(owners.values()) == set()
