#!/bin/sh
# setup.sh VENV REQUIREMENT: installs REQUIREMENT (".", ".[dev]") into the virtual environment.
set -eu
cd "$(dirname "$0")/.."
# An environment whose making was interrupted may have no pip yet.
"$1/bin/python" -m pip --version >/dev/null 2>&1 || "$1/bin/python" -m ensurepip >/dev/null
echo "fairqueue: installing $2 into $1"
PIP_DISABLE_PIP_VERSION_CHECK=1 "$1/bin/python" -m pip install --quiet --editable "$2"
