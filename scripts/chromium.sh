#!/usr/bin/env bash
# Gives a Debian or Ubuntu machine the browser in which the tests open the chat page. Needs root and a package mirror. Run
# again, it changes nothing.
set -euo pipefail

say() { echo "chromium: $*" >&2; }

if ! command -v chromium >/dev/null; then
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
say "$(dpkg-query --show --showformat='${Package} ${Version}' chromium) is installed"
