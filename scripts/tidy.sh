#!/usr/bin/env bash
# clang-tidy over the .cc files that changed since BASE, and those that include a changed header.
#
#   scripts/tidy.sh main~5
#   scripts/tidy.sh --all
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-main}
build=build/tidy  # each file by itself, with the generated headers and no more
[ -f "$build/build.ninja" ] || cmake --preset cpu -B "$build" >/dev/null
cmake --build "$build" --target gemmd_proto

if [ "$base" = --all ]; then
  mapfile -t changed < <(git ls-files -- '*.cc')
else
  mapfile -t changed < <({
    git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h'
    git ls-files --others --exclude-standard -- '*.cc' '*.h'
  } | sort -u)
fi

sources=()
for file in "${changed[@]}"; do
  case "$file" in
    *.cc) sources+=("$file") ;;
    *.h) mapfile -t -O ${#sources[@]} sources < <(git grep -lF "\"$file\"" -- '*.cc' || true) ;;
  esac
done
# Only what the build compiles: clang-tidy guesses flags for the rest.
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | sort -u |
  while read -r file; do
    [ -n "$file" ] && grep -qF "$PWD/$file\"" "$build/compile_commands.json" && echo "$file"
  done)
if [ ${#sources[@]} -eq 0 ]; then
  echo "tidy: nothing changed since $base"
  exit 0
fi
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet --warnings-as-errors='*'
echo "tidy: ${#sources[@]} files clean"
