#!/usr/bin/env bash
# What hostile peers without a credential cost the daemon and somebody else: every attack at every kind of listener, as a
# table. Half an hour with the defaults; the machine should do nothing else.
#
#   scripts/hostile.sh [SECONDS_EACH [SECONDS_AFTER]]
#   scripts/hostile.sh 60 60 --attack rapid_reset --listener "TLS token"
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
settle=${2:-60}
shift $(($# < 2 ? $# : 2))
scripts/build.sh cpu hostile_measure >&2
exec build/cpu/tests/hostile/hostile_measure --seconds "$seconds" --settle "$settle" "$@"
