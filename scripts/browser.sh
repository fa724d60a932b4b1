#!/usr/bin/env bash
# Makes Chromium and Playwright available for the tests of the page, and starts Chromium once. Fails if it does not work.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v chromium >/dev/null; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "there is no Chromium, and it cannot be installed here" >&2; exit 1; }
  { timeout 120 apt-get update && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends chromium; } \
    >/tmp/txnwatch-chromium.log 2>&1 || { echo "Chromium cannot be installed: $(tail -n 1 /tmp/txnwatch-chromium.log)" >&2; exit 1; }
fi
timeout 60 chromium --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>ready</p>' 2>/dev/null | grep ready >/dev/null
scripts/venv.sh browser
