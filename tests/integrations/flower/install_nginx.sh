#!/usr/bin/env bash
# Make nginx available to the tests of the front, only where it is missing; needs root on Debian or Ubuntu.
set -euo pipefail
PATH="$PATH:/usr/sbin"
if command -v nginx >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no nginx found, and only root on Debian or Ubuntu can install it here: install the package 'nginx-light'" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # the package's own server stays off
apt-get update -qq >&2
apt-get install -qq -y --no-install-recommends nginx-light >&2
