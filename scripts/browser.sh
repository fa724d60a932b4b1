#!/usr/bin/env bash
# Makes Chromium and Playwright available for the tests of the page, and starts Chromium once. Fails if it does not work.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/debian.sh
# The shell is Chromium without its windows: a page takes it half the CPU. Not every distribution has it.
browser() { command -v chromium-headless-shell || command -v chromium; }
[ -n "$(browser)" ] || install_debian chromium-headless-shell Chromium || install_debian chromium Chromium
timeout 60 "$(browser)" --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>ready</p>' 2>/dev/null | grep ready >/dev/null
scripts/venv.sh browser
