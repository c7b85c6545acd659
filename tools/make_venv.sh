#!/bin/sh
# make_venv.sh VENV: makes a virtual environment with $PYTHON, or with the first Python on PATH that will do.
set -eu
cd "$(dirname "$0")/.."
python=$(tools/find_python.sh)
echo "fairqueue: making $1 with $("$python" --version) ($python)"
"$python" -m venv --clear "$1"
