# Installs a Debian package for tests, as root or with a sudo that asks for no password. Sourced by other scripts.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# install_debian PACKAGE NAME: NAME is what the user misses without it.
install_debian() {
  local log=${TMPDIR:-/tmp}/txnwatch-$1.log
  command -v apt-get >/dev/null && as_root true 2>/dev/null || { echo "there is no $2, and it cannot be installed here" >&2; return 1; }
  { as_root timeout 120 apt-get update \
    && as_root env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends "$1"; } \
    >"$log" 2>&1 || { echo "$2 cannot be installed: $(tail -n 1 "$log")" >&2; return 1; }
}
