"""The Dockerfile as data: its stages, lists of instructions with build arguments filled in."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shlex
import string

from dockerfile_parse import DockerfileParser

KNOWN = {
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "HEALTHCHECK",
    "LABEL",
    "RUN",
    "STOPSIGNAL",
    "USER",
    "WORKDIR",
}


@dataclasses.dataclass(frozen=True)
class Instruction:
    name: str
    value: str  # flags taken out
    flags: dict[str, str]
    line: int

    def words(self) -> list[str]:
        """The JSON form's strings, or the shell form's words."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


@dataclasses.dataclass
class Stage:
    name: str
    base: str  # an image, or another stage's name
    instructions: list[Instruction]


def _flags(value: str) -> tuple[dict[str, str], str]:
    flags = {}
    while found := re.match(r"--([a-z-]+)=(\S+)\s+", value):
        flags[found[1]] = found[2]
        value = value[found.end() :]
    if value.startswith("--"):
        raise ValueError(f"a flag this does not know: {value}")
    return flags, value


class Dockerfile:
    """Raises ValueError on what it does not understand: half a file must not pass for all of it."""

    def __init__(self, path: pathlib.Path, arguments: dict[str, str] | None = None):
        self.arguments = dict(arguments or {})  # of the build, over the file's defaults
        self.stages: dict[str, Stage] = {}
        defaults: dict[str, str] = {}
        scope: dict[str, str] = {}
        stage: Stage | None = None
        for item in DockerfileParser(path=str(path), env_replace=False).structure:
            name, value, line = item["instruction"], item["value"], item["startline"] + 1
            if name == "COMMENT":
                continue
            if name == "ARG":
                key, _, default = value.partition("=")
                chosen = self.arguments.get(key, default or defaults.get(key, ""))
                (defaults if stage is None else scope)[key] = chosen
            if name == "FROM":
                base, _, alias = string.Template(value).substitute(defaults).partition(" AS ")
                stage = Stage(alias or str(len(self.stages)), base, [])
                self.stages[stage.name] = stage
                scope = {}  # a stage sees the arguments that it declares itself
                continue
            if stage is None:
                if name != "ARG":
                    raise ValueError(f"line {line}: {name} before the first FROM")
                continue
            if name not in KNOWN:
                raise ValueError(f"line {line}: {name} is not known")
            if name == "ARG":
                stage.instructions.append(Instruction("ARG", f"{key}={chosen}", {}, line))
                continue
            flags, rest = ({}, value) if name in ("RUN", "HEALTHCHECK") else _flags(value)
            if name == "RUN" and value.startswith("--"):
                raise ValueError(f"line {line}: flags of RUN are not known")
            if name not in ("RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK"):  # a shell fills in theirs
                rest = string.Template(rest).substitute(scope)
            stage.instructions.append(Instruction(name, rest, flags, line))

    def chain(self, name: str) -> list[Stage]:
        """The stage and those it is built from, the first one first."""
        stages = [self.stages[name]]
        while stages[0].base in self.stages:
            stages.insert(0, self.stages[stages[0].base])
        return stages

    def last(self, stage: str, name: str) -> Instruction:
        """The instruction of this name that holds for the stage's image."""
        return [i for s in self.chain(stage) for i in s.instructions if i.name == name][-1]

    def all(self, stage: str, name: str) -> list[Instruction]:
        return [i for s in self.chain(stage) for i in s.instructions if i.name == name]

    def target(self) -> str:
        """What a build without --target gives."""
        return list(self.stages)[-1]


def health_command(instruction: Instruction) -> list[str]:
    """HEALTHCHECK's command, in its JSON form."""
    _, _, command = instruction.value.partition("CMD ")
    return json.loads(command)
