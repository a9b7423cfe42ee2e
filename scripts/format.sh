#!/usr/bin/env bash
# clang-format over every tracked C++ file; --check only says which differ and fails if any does.
set -euo pipefail
cd "$(dirname "$0")/.."

# Version 14 wherever it is called that: the next versions format differently.
format=clang-format-14
command -v "$format" >/dev/null || format=clang-format
version="$("$format" --version)"
case "$version" in
  *" 14."*) ;;
  *)
    echo "format: the style is clang-format 14's, found: $version" >&2
    exit 1
    ;;
esac

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- \
  '*.cc' '*.h' '*.cu' '*.cuh' | while read -r file; do [ -f "$file" ] && echo "$file"; done)
[ ${#files[@]} -gt 0 ] || {
  echo "format: no C++ file found" >&2
  exit 1
}
each() { printf '%s\0' "${files[@]}" | xargs -0 -n 64 -P "$(nproc)" "$format" "$@"; }
if [ "${1:-}" = --check ]; then
  each --dry-run --Werror
  echo "format: ${#files[@]} files are as clang-format 14 wants them"
else
  each -i
fi
