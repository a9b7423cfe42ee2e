"""The files that pages name in their examples: matrices, checkpoints, a config. A program that makes them where it is run."""

FILES = """
import json, pathlib
import numpy as np

def safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)

draw = np.random.default_rng(1).standard_normal
some = {"a": (8, 256), "b": (256, 128), "c": (8, 128), "bias": (128,), "x": (8, 256), "w": (256, 128)}
for name, shape in some.items():
    np.save(name + ".npy", draw(shape, "f4"))
safetensors(pathlib.Path("model.safetensors"), {"layer.0.w": draw((128, 256), "f4")})
for folder in ("model", "model-b"):
    safetensors(pathlib.Path(folder, "model.safetensors"), {"layer.0.w": draw((128, 256), "f4")})
socket = pathlib.Path("checked.sock").absolute()
pathlib.Path("gemmd.textproto").write_text(
    f'listeners {{ address: "unix:{socket}" }} tenants {{ name: "default" }} devices {{ name: "cpu:0" }}')
"""
