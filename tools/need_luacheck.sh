#!/bin/sh
# Makes sure that luacheck, which reads the engine's Lua scripts, is on PATH; root on Debian gets it installed.
set -eu
command -v luacheck >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "fairqueue: installing the Debian package lua-check"
    log=$(mktemp)
    if { apt-get -qq install -y --no-install-recommends lua-check ||
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends lua-check; }; } >"$log" 2>&1; then
        rm -f "$log"
        exit 0
    fi
    cat "$log" >&2
    rm -f "$log"
fi
echo "fairqueue: the Lua lint needs luacheck on PATH: install the package lua-check" \
    "(Debian, Ubuntu: apt-get install lua-check; elsewhere: luarocks install luacheck)" >&2
exit 1
