"""What bash, zsh and fish offer of what a server and a file know."""

import json
import shlex
import shutil
import struct
import subprocess

import pytest
from gemmd._ops.multiply import QUANTIZED
from gemmd.ops import ACTIVATIONS

UNPUBLISH = "take a published buffer's name away, or all names that a pattern matches"


@pytest.fixture(scope="module")
def folder(gemmctl, tmp_path_factory):
    """With gemmctl and a file of tensors."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "gemmctl").symlink_to(gemmctl)
    header = json.dumps({
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
        for i, name in enumerate(["down", "up", "up.scale", "$(touch hacked)"])
    }).encode()  # fmt: skip
    data = struct.pack("<Q", len(header)) + header + bytes(16)
    (folder / "m.safetensors").write_bytes(data)
    return folder


def run(folder, shell, text, *arguments):
    """The lines that a shell prints, with its completion script read."""
    script = subprocess.run(
        [folder / "gemmctl", "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    done = subprocess.run(
        [shell, "-c", script + text, *arguments],
        capture_output=True, text=True, check=True, cwd=folder, timeout=120,
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    assert not (folder / "hacked").exists()
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def bash(folder):
    """What bash offers for words, of which the last is being typed, cut as readline cuts them."""

    def offers(*words):
        ask = (
            'COMP_WORDS=(gemmctl "$@"); COMP_CWORD=$#; COMP_LINE="${COMP_WORDS[*]}"; _gemmctl\n'
            'for word in "${COMPREPLY[@]}"; do printf "%s\\n" "$word"; done'
        )
        return run(folder, "bash", ask, "bash", *words)

    return offers


def zsh_offers(folder, *words):
    """The same of zsh, with the help that it shows; its own functions only print."""
    ask = (
        "\ncompset() { }; _files() { print FILES }\n"
        '_describe() { print -rl -- "${(@P)2}" }\n'
        'words=(gemmctl "$@"); CURRENT=$#words; _gemmctl\n'
    )
    return run(folder, "zsh", ask, "zsh", *words)


def fish_offers(folder, line):
    return run(folder, "fish", f"complete -C {shlex.quote(line)}")


def test_names_of_the_server(bash, target):
    at = ("--server", target)
    assert bash("unpublish", *at, "") == ["model/w1", "model/w2", "other"]
    assert bash("download", *at, "model/") == ["model/w1", "model/w2"]
    assert bash("unpublish", "--server", "=", target, "o") == ["other"]
    assert bash("matmul", *at, "--device", "") == ["cuda:0", "cuda:1"]
    assert bash("matmul", *at, "--kernel", "=", "sm90_fp8_1") == [
        "sm90_fp8_128x128", "sm90_fp8_128x256",
    ]  # fmt: skip
    assert bash("end", *at, "s") == ["s-0", "s-1", "s-2"]
    assert bash("health", *at, "c") == ["cuda:0", "cuda:1"]


def test_published_weights_are_operands(bash, target):
    at = ("--server", target)
    assert bash("matmul", *at, "x.npy", "@", "mo") == ["@model/w1", "@model/w2"]
    assert bash("matmul", *at, "x.npy", "@") == ["@model/w1", "@model/w2", "@other"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_published_weights_are_operands_in_zsh(folder, target):
    at = ("--server", target)
    assert zsh_offers(folder, "matmul", *at, "x.npy", "@o")[0].startswith("@other")


def test_tensors_of_a_file(bash):
    assert bash("upload", "m.safetensors", ":") == ["down", "up", "up.scale"]
    assert bash("upload", "m.safetensors", ":", "up") == ["up", "up.scale"]
    assert bash("upload", "m") == ["m.safetensors"]


def test_what_the_program_knows_itself(bash):
    assert bash("matmul", "--quantize", "=", "f") == ["fp8-block", "fp8-tensor", "fp8-row"]
    assert bash("matmul", "--quantize", "=") == bash("matmul", "--quantize", "")
    assert bash("help", "ma") == ["matmul", "man"]
    assert bash("man", "to") == ["top", "token"]
    assert bash("na") == []  # for completion itself


def test_gemmctl_and_python_have_one_vocabulary(bash):
    assert set(bash("matmul", "--quantize", "")) == {"none", *QUANTIZED}
    assert set(bash("matmul", "--activation", "")) == set(ACTIVATIONS)


def test_without_a_server_nothing_is_offered_and_soon(bash):
    assert bash("unpublish", "--server", "127.0.0.1:1", "") == []


def test_every_command_completes_and_has_a_page(gemmctl, bash):
    listed = subprocess.run([gemmctl, "help"], capture_output=True, text=True, check=True).stdout
    rows = listed.split("commands:")[1].split("\n\n")[0].splitlines()
    commands = [row.split()[0] for row in rows if row]
    assert len(commands) > 20
    for command in commands:
        assert command in bash(command[:-1])
        assert "--json" in bash(command, "--")
        page = subprocess.run([gemmctl, "man", command], capture_output=True, text=True, check=True)
        assert f"gemmctl\\-{command}" in page.stdout or f"gemmctl-{command}" in page.stdout
    assert set(bash("")) >= set(commands)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh(folder, target):
    at = ("--server", target)
    assert zsh_offers(folder, *at, "unpublish", "mo") == ["model/w1:", "model/w2:"]
    assert zsh_offers(folder, *at, "health", "") == ["cuda\\:0:", "cuda\\:1:"]
    assert zsh_offers(folder, "matmul", "--quantize=fp8-b") == ["--quantize=fp8-block:"]
    assert zsh_offers(folder, "upload", "m.safetensors:d") == ["m.safetensors\\:down:"]
    assert zsh_offers(folder, "upload", "m") == ["FILES"]
    assert zsh_offers(folder, "unpub") == [f"unpublish:{UNPUBLISH}"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish(folder, target):
    at = f"gemmctl --server {target}"
    assert fish_offers(folder, f"{at} unpublish mo") == ["model/w1", "model/w2"]
    assert fish_offers(folder, f"{at} matmul --kernel=sm90_fp8_1") == [
        "--kernel=sm90_fp8_128x128", "--kernel=sm90_fp8_128x256",
    ]  # fmt: skip
    assert fish_offers(folder, "gemmctl upload m.safetensors:d") == ["m.safetensors:down"]
    assert fish_offers(folder, "gemmctl upload m.") == ["m.safetensors"]
    assert fish_offers(folder, "gemmctl unpub") == [f"unpublish\t{UNPUBLISH}"]
