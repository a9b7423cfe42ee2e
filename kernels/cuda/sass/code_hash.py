#!/usr/bin/env python3
"""Writes the C++ file that defines CodeHash(), StreamCodeHash() and KernelCompiler(): code_hash.py OUT OBJECT...

Runs at build time, between the compiler of the kernels and that of the file. A digest is of a kernel's instructions, so a
comment or another name changes none, and another config only adds one.
"""

import re
import sys

import machine_code

GEMM = re.compile(r"4cuda(?:4Gemm|10Gemm(Stream))ILm(\d+)E")  # the config, as Encode() makes a number of it

TEXT = """#include "kernels/cuda/sm90/code_hash.h"

namespace gemmd::kernels::cuda {{

std::string_view KernelCompiler() {{ return "{compiler}"; }}

{functions}
}}  // namespace gemmd::kernels::cuda
"""

FUNCTION = """std::string_view {kind}CodeHash(const GemmConfig& config) {{
  switch (Encode(config)) {{
{cases}
  }}
  return "";
}}
"""


def main(arguments):
    out, *objects = arguments
    digests, compilers = {"": {}, "Stream": {}}, set()
    for name, kernel in machine_code.kernels_of(objects).items():
        config = GEMM.search(name)
        if config:
            digests[config[1] or ""][int(config[2])] = kernel.digest()
            compilers.add(kernel.compiler)
    if len(compilers) != 1:
        return f"code_hash.py: {len(digests[''])} kernels of {len(compilers)} compilers in {', '.join(objects)}; build anew"
    functions = ""
    for kind, of_kind in digests.items():
        cases = (f'    case {config:#x}:\n      return "{digest}";' for config, digest in sorted(of_kind.items()))
        functions += FUNCTION.format(kind=kind, cases="\n".join(cases))
    with open(out, "w", encoding="utf-8") as file:
        file.write(TEXT.format(compiler=compilers.pop(), functions=functions))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
