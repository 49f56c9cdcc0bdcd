#!/bin/sh
# Make a virtual environment and install this checkout into it, editable.
#
#   scripts/setup.sh                                    .venv, the Python of .python-version, every extra
#   scripts/setup.sh ENV PYTHON EXTRAS [REQUIREMENT...] another one, for example
#   scripts/setup.sh .venv-openpi 3.11 model,draw,dev 'jax==0.5.3' 'numpy<2'
#
# It needs a Python and a network, or a filled cache of uv. Run again, it costs nothing until pyproject.toml,
# .python-version or the arguments change. What it installs with is, in this order: the uv named in $UV, any uv
# on PATH that runs, else one it puts into .tools/ (a private environment, so that an externally managed Python
# is left alone). NO_DEPS='A==1 B==2' names packages that come last, without what they ask for. Settings of uv pass through: UV_TORCH_BACKEND=cpu, for one, avoids the CUDA build of torch.

set -eu
: "${HOME:=/nonexistent}"  # a service or a container may have none; what is kept there is optional
cd "$(dirname "$0")/.."

ENV=${1:-.venv}
PYTHON=${2:-$(cat .python-version)}
EXTRAS=${3:-model,lerobot,sim,serve,draw,trackers,dev}
if [ $# -ge 3 ]; then shift 3; else set --; fi # what is left are further requirements

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

STAMP=$ENV/.setup-stamp
WANTED=$({ cat pyproject.toml .python-version; printf '%s\n' "$PWD" "$ENV" "$PYTHON" "$EXTRAS" "$@" ${NO_DEPS:-}; } | cksum)
if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$WANTED" ] && [ -x "$ENV/bin/python" ]; then
    exit 0
fi

# Every program of that name on PATH, in order: a shim that fails may hide one that works.
candidates() {
    old_ifs=$IFS; IFS=:
    for folder in $PATH; do
        [ ! -x "${folder:-.}/$1" ] || printf '%s\n' "${folder:-.}/$1"
    done
    IFS=$old_ifs
}

first_that_runs() { # PROGRAM ARGUMENT...: the first one on PATH that runs so with success
    program=$1; shift
    candidates "$program" | while IFS= read -r found; do
        if "$found" "$@" >/dev/null 2>&1; then printf '%s\n' "$found"; break; fi
    done
}

# A copy of the uv that pip fetched, for the next checkout: without a network, pip could not fetch it again.
KEPT_UV=${XDG_CACHE_HOME:-$HOME/.cache}/morph_vla/uv

find_uv() {
    for found in "${UV:-}" "$(first_that_runs uv --version)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" \
        .tools/bin/uv .tools/target/bin/uv "$KEPT_UV"; do
        if [ -n "$found" ] && "$found" --version >/dev/null 2>&1; then printf '%s\n' "$found"; return; fi
    done
}

install_uv() {
    base=$(first_that_runs python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))')
    [ -n "$base" ] || fail "no Python found: install Python $PYTHON (or uv) and run this again"
    say "no working uv on PATH: putting one into .tools/ with $base"
    rm -rf .tools
    if "$base" -m venv .tools >.setup-log 2>&1; then
        .tools/bin/python -m pip install --quiet 'uv>=0.5,<1' >>.setup-log 2>&1 || true
    elif rm -rf .tools && "$base" -m pip --version >>.setup-log 2>&1; then
        # Debian without python3-venv: a folder of its own also leaves the system's packages alone (PEP 668).
        "$base" -m pip install --quiet --target .tools/target 'uv>=0.5,<1' >>.setup-log 2>&1 || true
    else
        rm -f .setup-log
        fail "$base has neither venv nor pip: install one (apt-get install python3-venv) or uv, and run this again"
    fi
    if [ -z "$(find_uv)" ]; then
        sed 's/^/    /' .setup-log >&2
        rm -rf .tools .setup-log
        fail "pip could not install uv (no network?): install uv by hand and run this again"
    fi
    rm -f .setup-log
    { mkdir -p "${KEPT_UV%/uv}" && cp "$(find_uv)" "$KEPT_UV.$$" && mv "$KEPT_UV.$$" "$KEPT_UV"; } 2>/dev/null || true
}

is_wanted() { # PATH-TO-PYTHON: whether it runs and is $PYTHON
    "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$PYTHON')" >/dev/null 2>&1
}

made_elsewhere() { # whether $ENV was moved or copied here: its programs would start the Python of the old place
    [ -f "$ENV/bin/activate" ] || return 1
    for place in "$(cd "$ENV" && pwd)" "$(cd "$ENV" && pwd -P)"; do
        case "$(cat "$ENV/bin/activate")" in
            *"VIRTUAL_ENV='$place'"* | *"VIRTUAL_ENV=\"$place\""* | *"VIRTUAL_ENV=$place"*) return 1 ;;
        esac
    done
}

# A Python that uv sees, else one of pyenv or conda that is not on PATH, else one that uv downloads.
make_environment() {
    if [ -f "$ENV/pyvenv.cfg" ] && made_elsewhere; then
        say "$ENV was made in another folder: making it again"
    elif [ -f "$ENV/pyvenv.cfg" ] && is_wanted "$ENV/bin/python"; then
        return
    fi
    if [ -e "$ENV" ] && [ ! -f "$ENV/pyvenv.cfg" ]; then
        fail "$ENV exists and is no virtual environment: move it away and run this again"
    fi
    rm -rf "$ENV"
    "$uv" venv --quiet --no-python-downloads --python "$PYTHON" "$ENV" 2>/dev/null && return
    for found in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$PYTHON"*/bin/python "${CONDA_PREFIX:-/none}"/bin/python \
        /opt/conda/bin/python "$HOME"/miniconda3/bin/python; do
        if is_wanted "$found" && "$uv" venv --quiet --python "$found" "$ENV"; then return; fi
    done
    say "no Python $PYTHON on this machine: asking uv for one"
    "$uv" venv --quiet --python "$PYTHON" "$ENV" ||
        fail "Python $PYTHON is neither here nor could uv download it: install it and run this again"
}

uv=$(find_uv)
if [ -z "$uv" ]; then install_uv; uv=$(find_uv); fi
begun=$(date +%s)
rm -f "$STAMP" # an interrupted installation is no installation
export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}" # some wheels are large
set -- --editable ".[$EXTRAS]" "$@"
say "$ENV: Python $PYTHON and $* (by $("$uv" --version | cut -d' ' -f1-2))"
make_environment
# Compiled once here, not at every start: where PYTHONDONTWRITEBYTECODE is set, lerobot takes 20 s to import.
"$uv" pip install --quiet --compile-bytecode --python "$ENV/bin/python" "$@" ||
    { say "that failed; trying once more with what is in uv's cache"
      "$uv" pip install --quiet --offline --compile-bytecode --python "$ENV/bin/python" "$@"; } ||
    fail "the packages could not be installed (see above); with a network, run this again"
[ -z "${NO_DEPS:-}" ] ||
    "$uv" pip install --quiet --compile-bytecode --no-deps --python "$ENV/bin/python" $NO_DEPS ||
    "$uv" pip install --quiet --offline --compile-bytecode --no-deps --python "$ENV/bin/python" $NO_DEPS ||
    fail "$NO_DEPS could not be installed (see above)"
printf '%s\n' "$WANTED" >"$STAMP"
say "done in $(($(date +%s) - begun)) s"
