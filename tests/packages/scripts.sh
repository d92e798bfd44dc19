#!/usr/bin/env bash
# quickstart.sh and test.sh with stand-ins for the commands that they call: what they say, and in which folder they
# work. And slurm.sbatch, what cpack runs before it packs, and a build type that does not exist.
#
#   scripts.sh SOURCE
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "scripts.sh: $*; said: $(cat "$work/said")" >&2; exit 1; }

tree="$work/a trée"
mkdir -p "$work/bin" "$tree/recipes" "$tree"/{docs,kernels,framework,datasets,tests}
cp -r "$source/launch" "$source/README.md" "$tree/"
cp -r "$source/recipes/quickstart" "$tree/recipes/"
stand_in() { cat >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
stand_in dpkg-query <<<'#!/bin/sh
echo install ok installed'
stand_in nvidia-smi <<<'#!/bin/sh
exit 1'
stand_in ctest <<<'#!/bin/sh
echo tested'
stand_in longstride <<<'#!/bin/sh
case $1 in
  prepare | recipe)
    echo "$*"
    while [ $# -gt 0 ]; do [ "$1" != --output ] || touch "$2"; shift; done ;;
  train) echo "train $*"; mkdir -p runs/quickstart-text/checkpoints/.tmp-step-00000500 ;;
  sample) mkdir -p "$2/samples" && echo sampled >"$2/samples/sample-000.txt" ;;
esac'
# Writes what the scripts read of a build folder; fails as a compiler does while there is a file named `broken`.
stand_in cmake <<'CMAKE'
#!/usr/bin/env bash
echo "cmake $*" >>"$0.calls"
if [ "$1" = --build ]; then
  echo "[1/2] Building"
  [ ! -e broken ] || { printf 'kernels/x.cpp:1:2: error: no space\nninja: build stopped\n'; exit 1; }
  cp "$(dirname "$0")/longstride" "$2/longstride"
  exit
fi
while [ "$1" != -B ]; do shift; done
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >"$2/CMakeCache.txt"
touch "$2/build.ninja"
echo "-- Longstride 0"
CMAKE
try() { # try SCRIPT [ARGUMENT...]
  code=0
  : >"$work/bin/cmake.calls"
  PATH=$work/bin:$PATH "$@" >"$work/said" 2>&1 </dev/null || code=$?
}
called() { grep -qE -- "$1" "$work/bin/cmake.calls"; }

cd "$tree"
touch broken
try launch/quickstart.sh
[ $code -eq 1 ] && grep -q 'x.cpp:1:2: error: no space' "$work/said" || fail "a failed build does not say why"
rm broken
CDPATH=.:"$work" try launch/quickstart.sh
[ $code -eq 0 ] && grep -q '^== Done' "$work/said" || fail "quickstart.sh fails where CDPATH is set"
cd /
try "$tree/launch/quickstart.sh"
[ $code -eq 0 ] && ! called '^cmake .*-S' || fail "quickstart.sh does not continue in a folder that is configured"
grep -q '^train ' "$work/said" && ! grep -q '^train .*--resume' "$work/said" ||
  fail "quickstart.sh resumes a run that was killed while it wrote its first checkpoint"
mkdir "$tree/runs/quickstart-text/checkpoints/step-00000500"
try "$tree/launch/quickstart.sh"
grep -q '^train .*--resume' "$work/said" || fail "quickstart.sh does not resume"
# Data of one's own: text in any encoding becomes UTF-8, and what most files are decides how they are prepared.
mkdir "$work/my texts" "$work/photos"
printf 'caf\xe9\n' >"$work/my texts/a.txt"
printf '\xff\xfed\x00\xfc\x00' >"$work/my texts/b.txt"
printf '\xef\xbb\xbfx\xc3\xbc' >"$work/my texts/c.txt"
try "$tree/launch/quickstart.sh" --data "$work/my texts" --minutes 1
[ $code -eq 0 ] && grep -q '^recipe data/quickstart-my-texts.h5 --minutes 1 ' "$work/said" &&
  [ "$(cat "$tree"/build/quickstart-my-texts.utf-8/*.txt)" = $'café\ndüxü' ] || fail "quickstart.sh does not take mixed texts"
touch "$work/photos"/{a.jpg,b.JPEG,notes.txt}
try "$tree/launch/quickstart.sh" --data "$work/photos"
[ $code -eq 0 ] && grep -q '^prepare images .*--fit crop' "$work/said" || fail "quickstart.sh does not know pictures"
try "$tree/launch/quickstart.sh" --data "$work/none"
[ $code -eq 2 ] && grep -q 'is not a file or folder' "$work/said" || fail "quickstart.sh takes data that does not exist"
try "$tree/launch/quickstart.sh" --minutes soon
[ $code -eq 2 ] && grep -q "minutes is 'soon'" "$work/said" || fail "quickstart.sh takes any --minutes"
cp -r "$tree" "$work/copied"
try "$work/copied/launch/quickstart.sh"
[ $code -eq 0 ] && called '--fresh' || fail "a copied tree builds the sources of the first"
cd "$tree"
CDPATH=. try launch/test.sh
[ $code -eq 0 ] && grep -qx tested "$work/said" && ! called '--fresh' || fail "test.sh fails where CDPATH is set"
try launch/test.sh --all --none
[ $code -eq 2 ] && grep -q 'one option at most' "$work/said" || fail "test.sh ignores an argument"

stand_in srun <<<'#!/bin/sh
echo "srun $*"
exit ${ends_with:-0}'
stand_in scontrol <<<'#!/bin/sh
if [ "$*" = "--oneliner show job 7" ]; then
  printf "JobId=%s ArrayJobId=7 JobName=x JobState=%s Reason=None\n" 71 RUNNING 7 "${state:-RUNNING}"
else
  echo "scontrol $*"
fi'
export SLURM_JOB_ID=7
ends_with=2 try bash launch/scripts/slurm.sbatch recipe.yaml "$work/a run"
[ $code -eq 2 ] && [ "$(wc -l <"$work/said")" -eq 2 ] || fail "slurm.sbatch says more than a run that does not start"
mkdir -p "$work/a run/checkpoints/step-00000100"
echo '  steps: 200' >"$work/a run/recipe.yaml"
try bash launch/scripts/slurm.sbatch recipe.yaml "$work/a run" --from old
[ $code -eq 0 ] && grep -q -- ' --resume$' "$work/said" && grep -qx 'scontrol requeue 7' "$work/said" ||
  fail "slurm.sbatch does not continue a run"
for state in COMPLETING CANCELLED; do
  state=$state try bash launch/scripts/slurm.sbatch recipe.yaml "$work/a run"
  [ $code -eq 0 ] && ! grep -q '^scontrol requeue' "$work/said" && grep -q "^at step 100 of 200: the job is $state " "$work/said" ||
    fail "slurm.sbatch requeues a job that was cancelled"
done

(umask 077 && mkdir -p "$work/packed/usr/bin" && touch "$work/packed/usr/bin/x")
cmake -D CPACK_TEMPORARY_DIRECTORY="$work/packed" -P "$source/cmake/readable_folders.cmake" >"$work/said" 2>&1
[ "$(stat -c %a "$work/packed" "$work/packed/usr/bin" "$work/packed/usr/bin/x" | xargs)" = "755 755 600" ] ||
  fail "folders of packages are closed by the umask"

try_type() { cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE="$1" >"$work/said" 2>&1; }
! try_type Relase && grep -q 'CMAKE_BUILD_TYPE is Relase, but must be one of Release' "$work/said" ||
  fail "a build type that does not exist is taken"
