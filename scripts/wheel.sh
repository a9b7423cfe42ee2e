#!/usr/bin/env bash
# One wheel with all of gemmd: daemon, gemmctl, gemmd_bench, the library to preload, and the Python client. It runs where
# glibc is as new as its tag says, with no compiler. Built from build/cuda it serves GPUs and CPUs.
#
#   scripts/wheel.sh [build-dir] [out-dir]    build/cuda where it is built, else build/cpu; build/packages
#   pip install build/packages/gemmd_service-*.whl
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/bundle.sh
build=${1:-build/cuda}
if [ $# -eq 0 ] && [ ! -x "$build/server/gemmd" ]; then build=build/cpu; fi
out=${2:-build/packages}

programs=("$build/server/gemmd" "$build/client/cli/gemmctl" "$build/bench/gemmd_bench")
preload=$build/server/grpc_threads/libgemmd_grpc_threads.so
for file in "${programs[@]}" "$preload" "$build/pages/written"; do
  [ -e "$file" ] || bundle_fail "$file is not there; build it: scripts/build.sh ${build##*/} gemmd_installed"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bundle "$work/tree" "${programs[@]}"
install -s -m 644 "$preload" "$work/tree/lib/"
cmake --install "$build" --prefix "$work/installed" --component runtime >/dev/null
mkdir -p "$work/tree/share" "$work/data"
mv "$work/installed/share/gemmd" "$work/installed/share/gemmd_bench" "$work/tree/share/"
cp -r deploy/config "$work/tree/share/gemmd/"
mv "$work/installed/share" "$work/data/share"

# The licences of what is taken from the distribution, one file a package.
licenses=$work/tree/licenses
mkdir "$licenses"
cp LICENSE "$licenses/gemmd"
for program in "${programs[@]}"; do ldd "$program"; done | awk '/=> \//{print $1, $3}' | sort -u | while read -r name path; do
  [ -f "$work/tree/lib/$name" ] || continue
  path=$(realpath "$path")
  package=$({ dpkg-query -S "$path" || dpkg-query -S "${path#/usr}"; } 2>/dev/null | head -n 1 | cut -d: -f1)
  [ -n "$package" ] || bundle_fail "no package of this system has $path, so that its licence is not known"
  cp -L "/usr/share/doc/$package/copyright" "$licenses/$package"
done

# From a copy: a build beside another, or what an earlier one left, would mix.
mkdir -p "$work/source/client"
cp -r CMakeLists.txt proto "$work/source/"
cp -r client/armed client/python "$work/source/client/"
rm -rf "$work/source/client/python/build" "$work"/source/client/python/src/*.egg-info
python=build/venv/bin/python
if [ ! -x "$python" ]; then
  /usr/bin/python3 -m venv "$work/venv"
  python=$work/venv/bin/python
fi
GEMMD_NATIVE=require "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" "$work/source/client/python"
"$python" packaging/wheel/assemble.py "$work"/gemmd_service-*.whl "$work/tree" "$work/data" "$out"
