#!/usr/bin/env bash
# Make mosquitto available to the tests of the MQTT engine, only where it is missing; needs root on Debian or Ubuntu.
set -euo pipefail
PATH="$PATH:/usr/sbin"
if command -v mosquitto >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no mosquitto found, and only root on Debian or Ubuntu can install it here: install the package 'mosquitto'" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # the package's own broker stays off
apt-get update -qq >&2
apt-get install -qq -y --no-install-recommends mosquitto >&2
