#!/bin/sh
# Prints the path of the first Python that fairqueue can run on: $PYTHON when given, else the first on PATH.
# Each candidate is run, not just looked at: version managers put names on PATH that lead nowhere.
set -eu

probe='import sys
if sys.version_info < (3, 11): raise SystemExit("it is Python %d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError: raise SystemExit("it lacks venv (Debian, Ubuntu: apt-get install python3-venv)")
print(sys.executable)'

if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" -c "$probe" || {
        echo "fairqueue: cannot use PYTHON=$PYTHON: expected Python 3.11 or newer with venv" >&2
        exit 1
    }
    exit 0
fi

newline="
"
seen=""
for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    rest="$PATH:"
    while [ -n "$rest" ]; do
        folder="${rest%%:*}"
        rest="${rest#*:}"
        candidate="$folder/$name"
        [ -x "$candidate" ] || continue
        if found=$("$candidate" -c "$probe" 2>&1); then
            echo "$found"
            exit 0
        fi
        seen="$seen$newline  $candidate: ${found##*"$newline"}"
    done
done
echo "fairqueue: expected Python 3.11 or newer on PATH, found${seen:- none}" >&2
echo "Install one, or name it: make PYTHON=/path/to/python3" >&2
exit 1
