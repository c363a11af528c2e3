#!/usr/bin/env bash
# Make a headless Chromium available to the slow tests, only where none is; needs root on Debian or Ubuntu.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no Chromium found, and only root on Debian or Ubuntu can install it here: install the package 'chromium'" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >&2
