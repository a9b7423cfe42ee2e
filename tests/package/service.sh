#!/usr/bin/env bash
# Run by service.py under a systemd of its own, with the package and its former version in /given.
set -eu
config=/etc/gemmd/gemmd.textproto
trap 'systemctl status --no-pager --full gemmd || true; systemctl --force exit' EXIT

step() { echo "== $*"; }
shown() { systemctl show --property "$1" --value gemmd; }
expect() { # PROPERTY VALUE
  [ "$(shown "$1")" = "$2" ] || { echo "$1 is $(shown "$1"), expected $2"; exit 1; }
}
refused() {
  if "$@"; then echo "not refused: $*"; exit 1; fi
}
serves() { gemmctl health --timeout 30s; }

ip link set lo up

step "installed, it runs as its own user without a capability"
dpkg -i /given/former.deb
serves
pid=$(shown MainPID)
[ "$(stat -c %U "/proc/$pid")" = gemmd ]
grep -q '^CapEff:\s*0*$' "/proc/$pid/status"
grep -q '^NoNewPrivs:\s*1$' "/proc/$pid/status"
[ "$(stat -c %U:%a /run/gemmd)" = gemmd:750 ]
[ "$(stat -c %U:%a /var/lib/gemmd)" = gemmd:750 ]
gemmctl info --server unix:/run/gemmd/gemmd.sock >/dev/null

step "a reload is taken by the same process"
systemctl reload gemmd
expect MainPID "$pid"

step "killed, it comes back"
kill -KILL "$pid"
until [ "$(shown MainPID)" != "$pid" ] && [ "$(shown ActiveState)" = active ]; do sleep 0.2; done
serves

step "a wrong config: the reload fails and says why, and the daemon serves on"
cp $config /given/right
echo 'lgo { level: LEVEL_INFO }' >>$config
pid=$(shown MainPID)
refused systemctl reload gemmd
expect MainPID "$pid"
serves
journalctl --unit gemmd --no-pager | grep -q 'no field named "lgo"; give one of'

step "a restart with it fails once and is not tried again"
refused systemctl restart gemmd
expect ActiveState failed
expect ExecMainStatus 2
sleep 5 # longer than RestartSec
expect ActiveState failed
expect NRestarts 0
cp /given/right $config
systemctl start gemmd
serves

step "an upgrade takes the new config file and restarts the daemon"
pid=$(shown MainPID)
dpkg -i /given/new.deb
serves
[ "$(shown MainPID)" != "$pid" ]
refused grep -q "the former version's" $config
[ "$(systemctl is-enabled gemmd)" = enabled ]
journalctl --unit gemmd --no-pager | grep -q 'drained answered_all=true'

step "disabled, it stays so over an upgrade"
systemctl disable gemmd
dpkg -i /given/new.deb
[ "$(systemctl is-enabled gemmd || true)" = disabled ]

step "removed, it is gone and its config stays; purged, nothing stays"
dpkg --remove gemmd
refused pidof gemmd
[ -f $config ]
dpkg --purge gemmd
refused getent passwd gemmd
refused getent group gemmd
for place in /run/gemmd /var/lib/gemmd /etc/gemmd /lib/systemd/system/gemmd.service; do refused test -e $place; done
touch /given/passed
