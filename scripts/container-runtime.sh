#!/usr/bin/env bash
# The Dockerfile's last stage up to the programs themselves: the libraries that they load, and the user that they run as.
# tests/deploy/test_dockerfile.py compares this list with what the built programs ask for. Names of Debian 12.
set -euo pipefail
umask 022
export DEBIAN_FRONTEND=noninteractive
began=$(date +%s)

packages=(
  libabsl20220623
  libgrpc++1.51
  libisal2
  libopenblas0-pthread
  libprometheus-cpp-core1.0
  libprotobuf32
  libssl3
)
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null

# The number is in the Dockerfile's USER, where it is what Kubernetes' runAsNonRoot can check, and in deploy/kubernetes.
groupadd --gid 8470 gemmd
useradd --uid 8470 --gid gemmd --home-dir /run/gemmd --no-create-home --shell /usr/sbin/nologin gemmd
install -d -o gemmd -g gemmd -m 750 /run/gemmd

# What says when this ran, or what differs from one run to the next, is no part of the image. Files out of packages keep
# their packages' times; those that were written just now get the one time.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
  /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-
find / -xdev -newermt "@$began" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
