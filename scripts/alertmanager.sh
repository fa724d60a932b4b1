#!/usr/bin/env bash
# Makes Alertmanager and amtool available for the tests of the push: Debian's package, without starting its service.
set -euo pipefail
if ! command -v prometheus-alertmanager >/dev/null || ! command -v amtool >/dev/null; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "there is no Alertmanager, and it cannot be installed here" >&2; exit 1; }
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  { timeout 120 apt-get update && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends prometheus-alertmanager; } \
    >/tmp/txnwatch-alertmanager.log 2>&1 || { echo "Alertmanager cannot be installed: $(tail -n 1 /tmp/txnwatch-alertmanager.log)" >&2; exit 1; }
fi
amtool --version >/dev/null 2>&1
