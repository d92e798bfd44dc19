#!/usr/bin/env bash
# Makes one small mistake at a time in the source, and reports those that neither a test of its room nor any fast test
# notices: each of these needs a test.
#
#   tests/mutants.sh [--room FOLDER] [--list] [--quick] [--again] [NUMBER ...]
#
# NUMBER, FOLDER: only these of tests/mutants/*.txt, or only those in files below the folder. --list: prints them and
# changes nothing. Each is built and tested in build/mutants, in a copy of the tree: first with the tests of its room,
# then, without --quick, with all fast tests. A killed mutant is not tried again until its file changes, a survivor not
# until any file changes, so that a run that was stopped continues; --again forgets that. Exits with 1 if any survives
# or does not compile.
set -euo pipefail
export GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=2 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$(dirname "${BASH_SOURCE[0]}")/mutants/mutants.py" "$@"
