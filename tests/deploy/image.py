"""Builds the Dockerfile's stages without a container engine.

Each stage is a folder, each RUN a chroot in namespaces.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess

from docker.utils.build import exclude_paths

from container import Spec, container_argv
from dockerfile import Dockerfile, Instruction

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass
class Image:
    """A root file system, and what an engine would keep beside it."""

    root: pathlib.Path
    stage: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    uid: int = 0
    gid: int = 0
    workdir: str = "/"


def context_files(source: pathlib.Path) -> set[str]:
    """What of a checkout .dockerignore lets through."""
    lines = (source / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {path for path in exclude_paths(str(source), patterns) if (source / path).is_file()}


def make_context(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    for path in context_files(source):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / path, target / path)
    return target


class Builder:
    """images: root folders by name; binds: the host's folders for every RUN; env: likewise."""

    def __init__(
        self,
        dockerfile: Dockerfile,
        context: pathlib.Path,
        work: pathlib.Path,
        images: dict[str, pathlib.Path],
        binds: dict[str, str],
        env: dict[str, str],
    ):
        self.dockerfile, self.context, self.work, self.images = dockerfile, context, work, images
        self.binds, self.env = binds, env
        self.built: dict[str, Image] = {}

    def build(self, *targets: str) -> dict[str, Image]:
        needed = self._needed(targets)
        for stage in needed:
            image = self._begin(stage, needed)
            for instruction in self.dockerfile.stages[stage].instructions:
                self._apply(image, instruction)
            self.built[stage] = image
        return {target: self.built[target] for target in targets}

    def _needed(self, targets: tuple[str, ...]) -> list[str]:
        """The stages that the targets are made of, in the file's order: others are not built."""
        stages = self.dockerfile.stages
        found: set[str] = set()
        wanted = list(targets)
        while wanted:
            name = wanted.pop()
            if name in stages and name not in found:
                found.add(name)
                wanted += [
                    stages[name].base,
                    *(i.flags["from"] for i in stages[name].instructions if "from" in i.flags),
                ]
        return [name for name in stages if name in found and name not in self.built]

    def _begin(self, stage: str, needed: list[str]) -> Image:
        base = self.dockerfile.stages[stage].base
        parent = self.built.get(base) or Image(self.images[base])
        root = self.work / stage
        image = dataclasses.replace(
            parent, root=root, stage=stage, env=dict(parent.env), arguments={}
        )
        others = [self.dockerfile.stages[name] for name in needed if name != stage]
        if base in self.built and not any(
            s.base == base or any(i.flags.get("from") == base for i in s.instructions)
            for s in others
        ):
            # Nobody else builds on it, and a copy of a gigabyte takes a while.
            parent.root.rename(image.root)
        else:
            subprocess.run(
                ["cp", "-a", "--reflink=auto", str(parent.root), str(image.root)], check=True
            )
        return image

    def _apply(self, image: Image, instruction: Instruction) -> None:
        if instruction.name == "RUN":
            self._run(image, instruction)
        elif instruction.name == "COPY":
            self._copy(image, instruction)
        elif instruction.name == "WORKDIR":
            image.workdir = instruction.value
            (image.root / image.workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction.name == "USER":
            uid, _, gid = instruction.value.partition(":")
            image.uid, image.gid = int(uid), int(gid)
        elif instruction.name in ("ENV", "ARG"):
            key, _, value = instruction.value.partition("=")
            (image.env if instruction.name == "ENV" else image.arguments)[key] = value

    def _run(self, image: Image, instruction: Instruction) -> None:
        print(f"RUN {instruction.value}", flush=True)
        spec = Spec(
            root=str(image.root),
            argv=["/bin/sh", "-c", instruction.value],
            uid=image.uid,
            gid=image.gid,
            env={
                **self.env,
                **image.env,
                **image.arguments,
                "HOME": "/root" if image.uid == 0 else "/",
            },
            workdir=image.workdir,
            binds={"/etc/resolv.conf": "/etc/resolv.conf:ro", **self.binds},
        )
        subprocess.run(container_argv(spec), check=True, timeout=3600)

    def _copy(self, image: Image, instruction: Instruction) -> None:
        if instruction.flags.keys() - {"from"}:
            raise ValueError(f"line {instruction.line}: flags of COPY that this does not know")
        *sources, target = instruction.words()
        origin = (
            self.built[instruction.flags["from"]].root
            if "from" in instruction.flags
            else self.context
        )
        into = image.root / str(pathlib.PurePosixPath(image.workdir, target)).lstrip("/")
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                into.mkdir(parents=True, exist_ok=True)
                subprocess.run(
                    ["cp", "-a", "--no-preserve=ownership", f"{path}/.", str(into)], check=True
                )
            else:
                file = into / path.name if target.endswith("/") else into
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, file)
