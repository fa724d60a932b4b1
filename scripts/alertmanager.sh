#!/usr/bin/env bash
# Makes Alertmanager, amtool, Prometheus and promtool available for the tests of the push and of the alert rules: Debian's
# packages, without starting their services.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
has_alertmanager() { command -v prometheus-alertmanager && command -v amtool; }
has_prometheus() { command -v prometheus && command -v promtool; }
if ! { has_alertmanager && has_prometheus; } >/dev/null; then
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ] && as_root true 2>/dev/null; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
  fi
  has_alertmanager >/dev/null || install_debian prometheus-alertmanager Alertmanager
  has_prometheus >/dev/null || install_debian prometheus Prometheus
fi
promtool --version >/dev/null 2>&1
amtool --version >/dev/null 2>&1
