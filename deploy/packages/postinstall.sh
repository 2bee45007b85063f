#!/bin/sh
# An update restarts a node that runs: it drains first. A new node is started by the
# operator, once its settings are complete.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart cachenode.service || true
fi
