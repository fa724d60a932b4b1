#!/usr/bin/env bash
# Makes Alertmanager and amtool available for the tests of the push: Debian's package, without starting its service.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
if ! command -v prometheus-alertmanager >/dev/null || ! command -v amtool >/dev/null; then
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ] && as_root true 2>/dev/null; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
  fi
  install_debian prometheus-alertmanager Alertmanager
fi
amtool --version >/dev/null 2>&1
