#!/usr/bin/env bash
# Install the named Debian packages that are missing: as root or by password-less sudo.
# Without either right, print the one command that installs them and fail.
set -euo pipefail

is_installed() {
  case "$1" in
    python3-venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing=()
for package in "$@"; do
  is_installed "$package" || missing+=("$package")
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "These programs are missing: ${missing[*]}. Install them with the package manager of this system." >&2
  exit 1
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
  if ! sudo -n true 2>/dev/null; then
    echo "Debian packages are missing. Install them, then start again:" >&2
    echo "  sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

echo "installing Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
for package in "${missing[@]}"; do
  is_installed "$package" || { echo "apt-get installed $package, and it is still not found." >&2; exit 1; }
done
