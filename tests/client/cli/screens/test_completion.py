"""What bash, zsh and fish offer of what a server and a file know."""

import json
import shutil
import struct
import subprocess

import pytest
from gemmd._ops.multiply import QUANTIZED
from gemmd.ops import ACTIVATIONS


@pytest.fixture(scope="module")
def bash(gemmctl, tmp_path_factory):
    """What bash offers for words, of which the last is being typed, cut as readline cuts them."""
    folder = tmp_path_factory.mktemp("bash")
    (folder / "gemmctl").symlink_to(gemmctl)
    header = json.dumps({
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
        for i, name in enumerate(["down", "up", "up.scale", "$(touch hacked)"])
    }).encode()  # fmt: skip
    data = struct.pack("<Q", len(header)) + header + bytes(16)
    (folder / "m.safetensors").write_bytes(data)
    script = subprocess.run(
        [gemmctl, "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout

    def offers(*words):
        done = subprocess.run(
            ["bash", "-c", script + 'COMP_WORDS=(gemmctl "$@"); COMP_CWORD=$#; _gemmctl\n'
             'printf "%s\\n" "${COMPREPLY[@]}"', "bash", *words],
            capture_output=True, text=True, check=True, cwd=folder, timeout=20,
            env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)},
        )  # fmt: skip
        assert not (folder / "hacked").exists()
        return done.stdout.split()

    return offers


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


@pytest.mark.parametrize("shell, check", [("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_other_shells_read_their_scripts(gemmctl, tmp_path, shell, check):
    script = subprocess.run(
        [gemmctl, "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    assert "names published" in script and "names tensors" in script
    if shutil.which(shell) is None:
        return  # its words alone
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, *check, str(tmp_path / "script")], check=True)
