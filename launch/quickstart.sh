#!/usr/bin/env bash
# From a clean clone to a trained model in minutes: installs packages, builds, prepares data, trains a small recipe,
# evaluates it, samples from it, and says what to do next. Safe to run again: it continues from what already exists.
#
#   launch/quickstart.sh                 trains on the text of this repository
#   launch/quickstart.sh --data PATH     trains on your own file or folder of text, pictures or sound, with a recipe
#                                        that `longstride recipe` writes for it
#   launch/quickstart.sh --minutes 5     that training's length with --data; default: 5
#
# CUDA kernels are built where there is a GPU to run them; LONGSTRIDE_CUDA=1 builds them anyway.
set -euo pipefail
root=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

data="" minutes=5
while [ $# -gt 0 ]; do
  case $1 in
    --data)
      [ $# -ge 2 ] || { echo "longstride: --data needs the name of a file or folder" >&2; exit 2; }
      data=$(realpath -- "$2" 2>/dev/null || echo "$2")
      { [ -f "$data" ] || [ -d "$data" ]; } && [ -r "$data" ] ||
        { echo "longstride: $2 is not a file or folder that can be read; --data names what to train on" >&2; exit 2; }
      shift 2 ;;
    --minutes)
      [[ ${2-} =~ ^[0-9]+([.][0-9]+)?$ ]] ||
        { echo "longstride: --minutes is '${2-}', but must be a number of minutes, such as 5" >&2; exit 2; }
      minutes=$2
      shift 2 ;;
    -h|--help) sed -n '2,10p' "${BASH_SOURCE[0]}" | cut -c 3-; exit 0 ;;
    *) echo "longstride: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
done

cd "$root"
source launch/scripts/packages.sh
install_packages "${longstride_packages[@]}"

echo "== Building (the first time about four minutes on two cores)"
build=build/quickstart
cuda=()
! without_gpu || cuda=(-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
{ [ -f $build/build.ninja ] && is_of_this_tree $build; } ||
  configure $build -DLONGSTRIDE_TESTS=OFF -DLONGSTRIDE_UNITY=ON ${cuda[@]+"${cuda[@]}"}
cmake --build $build --target longstride >$build/build.log 2>&1 || {
  tail -n 40 $build/build.log >&2
  echo "longstride: the build failed, for the reason above; all that it said is in $build/build.log" >&2
  exit 1
}
tail -n 1 $build/build.log
longstride=$build/longstride

# The kind of most files, by the ends of their names.
kind_of() {
  local pictures sounds all
  pictures=$(find -L "$1" -type f -iregex '.*\.\(png\|jpe?g\|webp\)' | wc -l)
  sounds=$(find -L "$1" -type f -iregex '.*\.\(wav\|flac\|ogg\|oga\|opus\|aiff?\|au\|caf\|mp3\)' | wc -l)
  all=$(find -L "$1" -type f | wc -l)
  if [ $((2 * pictures)) -gt "$all" ]; then echo images; elif [ $((2 * sounds)) -gt "$all" ]; then echo audio; else echo bytes; fi
}

kind=bytes own=$data
if [ -z "$data" ]; then
  name=text
  data=build/quickstart.txt
  # The default dataset: every text file of the repository, in a fixed order.
  find README.md docs kernels framework datasets launch recipes tests -type f \
    \( -name '*.md' -o -name '*.h' -o -name '*.cpp' -o -name '*.sh' -o -name '*.py' -o -name '*.yaml' \) |
    LC_ALL=C sort | xargs cat >$data.new
  if cmp -s $data.new $data; then rm $data.new; else mv $data.new $data; fi
else
  name=$(basename "$data" | tr -c 'A-Za-z0-9\n' '-')
  kind=$(kind_of "$data")
fi
dataset=data/quickstart-$name.h5
run=runs/quickstart-$name
case $kind in
  bytes) options=(--split 0.9,0.05,0.05) ;;
  images) options=(--size 32 --fit crop --grey convert --alpha white --skip-others) ;;
  audio) options=(--rate 12000 --skip-others) ;;
esac

mkdir -p data runs
# A file next to the dataset and one in the run record what they were made from: other bytes or another recipe start
# over. A folder is told apart by the names, sizes and times of its files.
digest() {
  local path
  for path in "$@"; do
    if [ -d "$path" ]; then find -L "$path" -type f -printf '%P %s %T@\n' | LC_ALL=C sort; else cat "$path"; fi
  done | sha256sum | cut -d ' ' -f 1
}
same() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }
made_from=$(digest "$data")
if [ $kind = bytes ] && [ -n "$own" ] && [ "$(launch/scripts/utf8.sh --check "$data")" -gt 0 ]; then
  copy=build/quickstart-$name.utf-8
  echo "== Copying the text as UTF-8 to $copy"
  rm -rf "$copy"
  launch/scripts/utf8.sh "$data" "$copy"
  data=$copy
fi
if [ ! -f "$dataset" ] || ! same "$dataset.made-from" "$made_from"; then
  echo "== Preparing $dataset"
  "$longstride" prepare $kind --input "$data" "${options[@]}" --output "$dataset" --force
  echo "$made_from" >"$dataset.made-from"
fi
recipe=recipes/quickstart/text.yaml
if [ -n "$own" ]; then
  recipe=data/quickstart-$name.yaml
  if [ ! -f "$recipe" ] || ! same "$recipe.made-from" "$made_from $minutes"; then
    echo "== Writing a recipe for it"
    "$longstride" recipe "$dataset" --minutes "$minutes" --output "$recipe" --force
    echo "$made_from $minutes" >"$recipe.made-from"
  fi
fi
made_from=$(digest "$dataset.made-from" $recipe)
if ! same "$run/made-from" "$made_from"; then
  rm -rf "$run"
  mkdir -p "$run"
  echo "$made_from" >"$run/made-from"
fi

echo "== Training $recipe on $data"
resume=()
! compgen -G "$run/checkpoints/step-*" >/dev/null || resume=(--resume)  # one that was being written does not count
"$longstride" train $recipe --set data.path="$dataset" --run "$run" ${resume[@]+"${resume[@]}"}

echo "== Evaluating"
"$longstride" eval "$run" --split test
echo "== Sampling"
if [ $kind = bytes ]; then
  "$longstride" sample "$run" --count 2 --length 400 --output "$run/samples"
  head -c 400 "$run/samples/sample-000.txt"
else
  "$longstride" sample "$run" --count 2
fi
as_root=""
[ "$(id -u)" -ne 0 ] || as_root=" --allow-run-as-root"
cat <<TXT


== Done. The run is in $run (metrics.jsonl, TensorBoard events, checkpoints, samples). Next:
  $longstride report $run                      a page about it, $run/report.html
  $longstride sample $run --length 4000         longer than the context; Ctrl-C keeps what is drawn
  $longstride train $recipe --set data.path=$dataset --sweep train.lr=1e-3,4e-3 --seeds 2
  $longstride info $dataset
  $longstride show pattern $recipe
  $longstride plan recipes/table1/enwik8-fixed.yaml --ranks 8
  mpirun$as_root -n 2 $longstride train $recipe --set data.path=$dataset --run runs/two-ranks --device cpu
  launch/quickstart.sh --data PATH          your own text, pictures or sound
  launch/test.sh                            the tests
TXT
