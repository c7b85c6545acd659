#!/bin/sh
# Makes sure that Debian's Redis 7 is there to be tested on; root on Debian gets it installed. Without it the caller skips it.
#
# The package redis-server is a link to a program in redis-tools, and a service that runs from then on. The program is all
# the tests want, so redis-tools is what is installed: under the name of redis-server its redis-check-rdb is the server.
set -eu
command -v redis-server >/dev/null 2>&1 || command -v redis-check-rdb >/dev/null 2>&1 && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0
echo "fairqueue: installing the Debian package redis-tools"
log=$(mktemp)
{ apt-get -qq install -y --no-install-recommends redis-tools ||
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends redis-tools; }; } >"$log" 2>&1 || cat "$log" >&2
rm -f "$log"
