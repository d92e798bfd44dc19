#!/usr/bin/env bash
# Changes the source one place at a time, as a slip would, and says which changes no fast test notices: each of those
# asks for a test.
#
#   tests/mutants.sh [--room FOLDER] [--list] [--quick] [--again] [NUMBER ...]
#
# NUMBER, FOLDER: only these of tests/mutants/*.txt, or those of files below the folder. --list: prints them, and
# changes nothing. Each is built and tried in build/mutants, in a copy of the tree: first by the tests of its room, then,
# without --quick, by all fast tests. What was killed is not tried again until its file changes, and what survived not
# until any file does, so that a run that was stopped continues; --again forgets that. Ends with 1 when any survives or
# does not compile.
set -euo pipefail
export GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=2 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$(dirname "${BASH_SOURCE[0]}")/mutants/mutants.py" "$@"
