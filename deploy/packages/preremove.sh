#!/bin/sh
# Debian passes "remove", RPM 0, when the package goes and is not updated.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now cachenode.service || true
	fi
	;;
esac
