#!/usr/bin/env bash
# Gathers what a bare GPU machine needs to measure, test and serve: gemm_bench, the tests named *_gpu_test, and, where
# they are built, gemmd, gemmctl, gemmd_bench and the end-to-end tests, with the shared libraries they use, stripped, in a tree that
# runs from anywhere; and the same as one archive. Where scripts/venv.sh has installed it, the Python package lies in python/.
#
#   scripts/dist.sh [build-dir] [out-dir]        build/cuda and build/dist, beside it build/dist.tar.xz
#   build/dist/bin/gemm_bench --help
#
# The target brings what bundle.sh says. cuBLASLt and CUPTI are used where it has them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/cuda}
out=${2:-build/dist}
max_mib=32  # of the archive: what still travels quickly

fail() {
  echo "dist.sh: $*" >&2
  exit 1
}

. scripts/bundle.sh

bench=$build/kernels/bench/cuda/gemm_bench
[ -x "$bench" ] || fail "$bench is not there; build it: scripts/build.sh cuda gemm_bench"
programs=("$bench")
for program in kernels/bench/cuda/grouped_bench kernels/bench/cuda/moe_bench kernels/bench/cuda/hand_over_bench server/gemmd client/cli/gemmctl bench/gemmd_bench \
  bench/split_bench tests/e2e/gemmd_doomed_client tests/e2e/gemmd_armed_doomed tests/e2e/armed_bench; do
  program=$build/$program
  [ -x "$program" ] && programs+=("$program")
done
mapfile -t tests < <(find "$build/tests" -type f -perm -u+x \( -name '*_gpu_test' -o -name 'e2e_*_test' \) | sort)
programs+=("${tests[@]}")

rm -rf "$out"
bundle "$out" "${programs[@]}"
mkdir -p "$out/share/gemmd_bench"
cp bench/python/*.py "$out/share/gemmd_bench/"
preload=$build/server/grpc_threads/libgemmd_grpc_threads.so
if [ -f "$preload" ]; then install -s -m 644 "$preload" "$out/lib/"; fi
# The Python package and what it needs that frameworks do not bring, for an interpreter of another version: the native
# module speaks the stable ABI.
package=$(find build/venv/lib -maxdepth 3 -type d -path '*/site-packages/gemmd' 2>/dev/null | head -n 1 || true)
if [ -n "$package" ]; then
  mkdir "$out/python"
  cp -r "$package" "$out/python/"
  find "$out/python" -name __pycache__ -prune -exec rm -r {} +
  build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --target "$out/python" \
    --python-version "${GEMMD_TARGET_PYTHON:-3.12}" 'google-crc32c>=1.5,<2'
fi
archive=$out.tar.xz
# A dictionary of the whole tree: the programs hold the same kernels, which then count once.
tar -C "$(dirname "$out")" -c "$(basename "$out")" | xz -T1 --lzma2=preset=6,dict=256MiB >"$archive"
mib=$(($(stat -c %s "$archive") / 1048576 + 1))
[ "$mib" -le "$max_mib" ] || fail "$archive has $mib MiB, more than $max_mib"
echo "$out: $(ls "$out/bin" | tr '\n' ' ')and $(ls "$out/lib" | wc -l) libraries, $(du -sm "$out" | cut -f1) MiB," \
  "$mib MiB as $archive"
