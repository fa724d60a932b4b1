#!/usr/bin/env bash
# Makes .venv with txnwatch and its demo installed editable, once: scripts/venv.sh run | dev | bench | fuzz | browser
# Quiet, with a sign of life; the whole of pip's output is in .venv/install-*.log.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
is_installed() {
  local stamp=.venv/.installed-$1
  [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt src/txnwatch_demo/pyproject.toml ]
}
if is_installed "$kind"; then exit 0; fi
if [ "$kind" = run ] && is_installed dev; then exit 0; fi

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found=$("$python" --version 2>&1 || true)
  echo "txnwatch needs Python 3.11 or later, found: ${found:-none}. Set PYTHON=/path/to/python3.11" >&2
  exit 1
fi
extra=$kind
[ "$kind" = run ] && extra=spark
printf 'setting up .venv with %s, once (PySpark is 400 MB: a minute or two) ' "$("$python" --version)" >&2
[ -x .venv/bin/python ] || "$python" -m venv .venv
log=.venv/install-$kind.log
.venv/bin/python -m pip install --disable-pip-version-check --no-input --editable ".[$extra]" --editable src/txnwatch_demo >"$log" 2>&1 &
pip=$!
while kill -0 "$pip" 2>/dev/null; do printf '.' >&2; sleep 3; done
if ! wait "$pip"; then
  printf '\n' >&2
  tail -n 20 "$log" >&2
  echo "installing failed; the whole output is in $log" >&2
  exit 1
fi
# Only for tests, which start Spark many times: the archive takes longer than it saves in one start.
if [ "$kind" = dev ] && ! .venv/bin/txnwatch prepare >>"$log" 2>&1; then
  printf ' (without an archive of classes, so Spark starts slower: %s)' "$log" >&2
fi
printf ' done\n' >&2
touch ".venv/.installed-$kind"
