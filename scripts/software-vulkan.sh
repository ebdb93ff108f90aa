#!/usr/bin/env bash
# Gives a Debian or Ubuntu machine without a GPU a Vulkan driver that runs on the CPU (lavapipe, part of Mesa), so that the
# WebGPU tests have an adapter. Dawn refuses lavapipe before Mesa 24; Debian 12 ships 22.3, so there it comes from backports.
# Needs root and a package mirror. Run again, it changes nothing.
set -euo pipefail

readonly package=mesa-vulkan-drivers
readonly wanted=24

say() { echo "software-vulkan: $*" >&2; }
is_new() { [[ -n $1 && $1 != "(none)" ]] && dpkg --compare-versions "$1" ge "$wanted"; }

installed=$(dpkg-query --show --showformat='${Version}' "$package" 2>/dev/null || true)
if is_new "$installed"; then
  say "$package $installed is installed"
  exit 0
fi

install() { DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 "$@" "$package" libvulkan1 >/dev/null; }

apt-get update --quiet=2
offered=$(apt-cache policy "$package" | awk '$1 == "Candidate:" { print $2 }')
if is_new "$offered"; then
  install
else
  # shellcheck source=/dev/null
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  mirror=$(apt-cache policy | grep -oE 'https?://[^ ]+' | grep -v security | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
  if [[ -z $release || -z $mirror ]]; then
    say "the mirror offers $package $offered, $wanted is needed, and no backports suite could be derived; add one by hand"
    exit 1
  fi
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  printf 'Types: deb\nURIs: %s\nSuites: %s-backports\nComponents: main\nSigned-By: %s\n' "$mirror" "$release" "$keyring" \
    >/etc/apt/sources.list.d/software-vulkan.sources
  apt-get update --quiet=2
  install --target-release "$release-backports"
fi
say "$(dpkg-query --show --showformat='${Package} ${Version}' "$package") is installed"
