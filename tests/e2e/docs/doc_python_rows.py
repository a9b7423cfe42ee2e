#!/usr/bin/env python3
"""Runs the Python in pages' tables as a reader would: in order, in one session of a daemon that was started without an argument.

  doc_python_rows.py GEMMD GEMMCTL PAGE..

A row's code are its code spans that parse as a call, an operator or a statement. What a page takes for granted, such as an array
by the name of x, is in GIVEN; what a row needs besides, in FIRST. What cannot be run is in ELSEWHERE with the reason, and a
reason or a need without such a row is an error, too. Spans with `..` are abbreviations, and no Python.
"""

import ast
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import doc_files
import doc_pages
import doc_rows

SPAN = re.compile(r"(?<!`)`([^`]+)`")

ELSEWHERE = {
    "armed.ring_on(stream)": "a stream of a GPU; armed_gpu_test",
    "armed.wait_on(stream)": "a stream of a GPU; armed_gpu_test",
    'layer = gemmd.Linear(session, w, split="columns")': "two devices; test_split.py",
    "session.from_dlpack(tensor)": "a tensor of torch; test_torch.py",
    "buffer.torch()": "torch; test_torch.py",
    "block.mlp = mlp.module()": "a model of torch; test_torch.py",
    "gemmd.adopt(model, session)": "a model of torch; test_adopt.py",
    "fast = gemmd.compile(model, session)": "a model of torch; test_compile.py",
    "fast(x)": "the same",
    "examples/digits": "a folder",
    "examples/workers": "a folder",
    "examples/mlp": "a folder",
    "[ceil(n/128), ceil(k/128)]": "a shape",
    'session.Find("m/layer.0.w")': "C++; share_test",
}

GIVEN = """
import os
import numpy as np
import gemmd

draw = np.random.default_rng(1).standard_normal
a, b, x, w = (draw(shape, "f4") for shape in [(8, 256), (256, 128), (8, 256), (128, 256)])
targets = [f"unix:{os.environ['XDG_RUNTIME_DIR']}/gemmd/gemmd.sock"]
client = gemmd.connect()
session = client.session()
weights = buffer = session.upload(w)
xs, ys = (session.create_buffer(shape=shape, dtype="f32") for shape in [(8, 256), (8, 128)])
ops = [gemmd.write(xs, x), gemmd.matmul(xs, weights, ys), gemmd.read(ys)]
"""

# By the row's code.
FIRST = {
    "armed = plan.arm()": "plan = session.plan([gemmd.matmul(xs, weights, ys)])",
    "with session.queue() as queue: future = queue.submit(ops)": "ops = [gemmd.matmul(xs, weights, ys), gemmd.read(ys)]",
    'mlp = gemmd.MLP(session, gate_up, down, name="model/mlp1")': 'gate_up, down = draw((256, 256), "f4"), draw((256, 128), "f4")',
    "gemmd.MoE(session, gate_up, down, top_k=2)": 'gate_up, down = draw((4, 256, 256), "f4"), draw((4, 256, 128), "f4")',
    "moe(x, experts, weights)": (
        "moe = gemmd.MoE(session, gate_up, down, top_k=2); weights = np.full((8, 2), 0.5, 'f4');"
        "experts = np.tile(np.array([1, 3], 'i4'), (8, 1))"
    ),
    "gemmd.gated(pairs, y)": "pairs, y = session.upload(x), session.upload(draw((8, 128), 'f4'))",
    'buffer.publish("model/w1")': "layer.unpublish()",
    "gemmd.Replicas(targets, prepare)": "prepare = lambda session: session.upload(w)",
    "replicas.run(work)": (
        "replicas = gemmd.Replicas(targets, prepare); work = lambda session, weights: session.matmul(x, weights.T)"
    ),
    "print(y.report)": "y = session.matmul(a, b)",
}


def is_code(span):
    try:
        tree = ast.parse(span)
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Call, ast.BinOp)) for node in ast.walk(tree))


def code_of(page):
    text = re.sub(r"^```.*?^```$", "", pathlib.Path(page).read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [span for row in doc_rows.ROW.findall(text) for span in SPAN.findall(row) if is_code(span)]
    if not found:
        sys.exit(f"{page} has no table with Python: there is nothing to test")
    return found


def program_of(spans):
    """One program, which says where it is so that a failure names its row."""
    lines = [GIVEN]
    for span in spans:
        lines += [f"print({span!r}, flush=True)", FIRST.get(span, ""), span]
    return "\n".join([*lines, "session.close()", "client.close()"])


def main():
    gemmd, gemmctl, *pages = sys.argv[1:]
    spans = [span for page in pages for span in code_of(page)]
    unused = [span for span in [*ELSEWHERE, *FIRST] if span not in spans]
    if unused:
        sys.exit(f"no row has these any more: {unused}")
    ran = [span for span in spans if span not in ELSEWHERE]
    doc_pages.alone_on_loopback()
    with tempfile.TemporaryDirectory() as root:
        shell = {"env": doc_pages.environment(root, gemmd, gemmctl), "cwd": doc_pages.folder_in(root)}
        subprocess.run([sys.executable, "-c", doc_files.FILES], check=True, cwd=shell["cwd"])
        daemon = subprocess.Popen(["gemmd"], stderr=subprocess.DEVNULL, **shell)
        try:
            subprocess.run(["gemmctl", "health", "--timeout", "60s"], check=True, stdout=subprocess.DEVNULL, **shell)
            failed = subprocess.run(["python3", "-c", program_of(ran)], check=False, timeout=240, **shell).returncode != 0
        finally:
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(timeout=120)
    print(f"{len(ran)} rows ran, {len(ELSEWHERE)} are tested elsewhere; gemmd exited with {status}")
    if failed or status != 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
