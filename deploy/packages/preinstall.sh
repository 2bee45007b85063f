#!/bin/sh
# The user owns files of the package, so it exists before them.
set -e
if ! getent passwd shardwatch >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/shardwatch --shell /usr/sbin/nologin shardwatch
fi
