#!/usr/bin/env bash
# Sees that Java 17 or newer is on the PATH, with its compiler: tests run Java programs from their source files.
# On Debian and its relatives it installs one if it may.
set -euo pipefail

java_is_there() {
  command -v java >/dev/null || return 1
  local major
  major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ -n "$major" ] && [ "$major" -ge 17 ] || return 1
  local modules
  modules=$(java --list-modules)
  [[ $modules == *jdk.compiler@* ]]
}

java_is_there && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != "false" ]; then
  for package in openjdk-17-jdk-headless default-jdk-headless; do
    echo "installing $package"
    if "${as_root[@]}" apt-get update -qq \
      && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null \
      && java_is_there; then
      exit 0
    fi
  done
fi

echo "error: no Java 17 or newer with its compiler (a JDK, not a JRE alone) on the PATH, and it could not be installed here" >&2
echo "remedy: install one and try again (Debian: apt-get install openjdk-17-jdk-headless)" >&2
exit 1
