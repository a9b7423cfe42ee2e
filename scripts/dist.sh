#!/usr/bin/env bash
# Gathers what a bare GPU machine needs to measure, test and serve: gemm_bench, the tests named *_gpu_test, and, where
# they are built, gemmd, gemmctl, gemmd_bench and the end-to-end tests, with the shared libraries they use, stripped, in a tree that
# runs from anywhere; and the same as one archive. Where scripts/venv.sh has installed it, the Python package lies in python/.
#
#   scripts/dist.sh [build-dir] [out-dir]        build/cuda and build/dist, beside it build/dist.tar.xz
#   build/dist/bin/gemm_bench --help
#
# The target brings glibc, libstdc++ and libgcc at least as new as this machine's, and the NVIDIA
# driver. cuBLASLt and CUPTI are used where it has them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/cuda}
out=${2:-build/dist}
max_mib=40  # of the archive: what still travels quickly

fail() {
  echo "dist.sh: $*" >&2
  exit 1
}

# Of glibc, of the compiler's run time and of the driver, the target has its own.
is_system() {
  case "$1" in
    ld-linux* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.*) return 0 ;;
    libstdc++.so.* | libgcc_s.so.* | libcuda.so.* | libnvidia-*) return 0 ;;
    *) return 1 ;;
  esac
}

bench=$build/kernels/bench/cuda/gemm_bench
[ -x "$bench" ] || fail "$bench is not there; build it: scripts/build.sh cuda gemm_bench"
programs=("$bench")
for program in "$build/kernels/bench/cuda/grouped_bench" "$build/server/gemmd" "$build/client/cli/gemmctl" "$build/bench/gemmd_bench" "$build/bench/split_bench" "$build/tests/e2e/gemmd_doomed_client" \
  "$build/tests/e2e/armed_bench"; do
  [ -x "$program" ] && programs+=("$program")
done
mapfile -t tests < <(find "$build/tests" -type f -perm -u+x \( -name '*_gpu_test' -o -name 'e2e_*_test' \) | sort)
programs+=("${tests[@]}")

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib"
for program in "${programs[@]}"; do
  # ldd lists what the libraries themselves need, too.
  while read -r name _ path _; do
    [ "$path" = not ] && fail "$program needs $name, which this machine has not"
    is_system "$name" && continue
    [ -f "$path" ] || continue  # linux-vdso has no file
    cp -nL "$path" "$out/lib/$name"
  done < <(ldd "$program" | grep '=>')
  cp "$program" "$out/bin/"
done
mkdir -p "$out/share/gemmd_bench"
cp bench/python/*.py "$out/share/gemmd_bench/"
preload=$build/server/grpc_threads/libgemmd_grpc_threads.so
if [ -f "$preload" ]; then cp "$preload" "$out/lib/"; fi
strip --strip-all "$out"/bin/*
if [ -n "$(ls "$out/lib")" ]; then
  chmod u+w "$out"/lib/*
  strip --strip-unneeded "$out"/lib/*
fi

for program in "$out"/bin/*; do
  # Without it the libraries beside a program would not be found. An RPATH, unlike a RUNPATH, also
  # holds for what the libraries themselves need.
  readelf -d "$program" | grep -Eq '\(RPATH\).*\$ORIGIN/\.\./lib' ||
    fail "$program has no RPATH \$ORIGIN/../lib; see gemmd_relocatable in cmake/targets.cmake"
  # The loader's own word for where each library comes from: a tree that leans on this machine's would fail there.
  while read -r name _ path _; do
    is_system "$name" || [ ! -f "$path" ] || [ "$(realpath "$path")" = "$(realpath "$out")/lib/$name" ] ||
      fail "$program takes $name from $path and not from the tree"
  done < <(env -i ldd "$program" | grep '=>')
done
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
tar -C "$(dirname "$out")" -c "$(basename "$out")" | xz -6 -T0 >"$archive"
mib=$(($(stat -c %s "$archive") / 1048576 + 1))
[ "$mib" -le "$max_mib" ] || fail "$archive has $mib MiB, more than $max_mib"
echo "$out: $(ls "$out/bin" | tr '\n' ' ')and $(ls "$out/lib" | wc -l) libraries, $(du -sm "$out" | cut -f1) MiB," \
  "$mib MiB as $archive"
