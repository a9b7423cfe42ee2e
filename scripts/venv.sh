#!/usr/bin/env bash
# build/venv: a Python environment with client/python and what its tests need. Installed again only
# when client/python or proto/ changed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
stamp="$venv/.installed"

# The system's interpreter, not whatever shim stands first in PATH: python3-venv belongs to it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

sources="$(find client/python proto scripts/venv.sh -type f -not -path '*/__pycache__/*' \
  -not -path '*.egg-info/*' -not -path '*/build/*' -not -path '*/.pytest_cache/*' -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sources" ] && exit 0

echo "venv: installing client/python into $venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check ./client/python 'pytest>=8'
echo "$sources" >"$stamp"
