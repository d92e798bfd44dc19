# Helpers of the scripts of this folder: a small text, a recipe, and how runs are started and compared. Sourced in an
# empty working directory; `longstride` is the command and `here` this folder.
fail() { echo "FAILED: $*" >&2; exit 1; }

# Not a pipe, which would fail because head ends first.
head -c 120000 < <(cat "$here"/*.sh "$here"/../../docs/*/*.md "$here"/../../docs/notes/*/*.md) >text.bin
"$longstride" prepare bytes --input text.bin --split 0.9,0.05,0.05 --output text.h5 >/dev/null 2>&1

write_recipe() { # write_recipe "key: value" ...: added to the section train
  local entry more=
  for entry in "$@"; do more="$more, $entry"; done
  cat >recipe.yaml <<R
name: toy
data: {kind: bytes, path: text.h5, context: ${context:-256}}
model:
  kind: sparse_transformer
  layers: 2
  width: 64
  heads: 4
  dropout: 0.1
  attention: {integration: merged, parts: [fixed_block, fixed_summary], stride: 32, summary: 8, distinct_heads: true}
  recompute: block
train: {global_batch: 8, micro_batch: 2, lr: 1.0e-3, warmup: 5, seed: 3, log_every: 1, ema: 0.9, evaluate_windows: 8$more}
R
}
write_survey_recipe() { # write_survey_recipe MODEL "key: value" ...: one with a memory, at toy size
  local base sizes
  case $1 in
    transformer-xl) base=enwik8-transformer-xl-12 sizes="memory: {length: 64}" ;;
    compressive) base=enwik8-compressive-24 sizes="memory: {length: 64, compressed: 48, rate: 4}" ;;
    compressive-house) base=text-8min-compressive-house sizes="memory: {length: 64, compressed: 64}" ;;
    adaptive)
      base=enwik8-adaptive-12
      sizes="memory: {length: 64}, distance: {distances: 64, window: 65, span: {longest: 64, ramp: 8, initial: 0.25}}"
      ;;
    *) fail "unknown model $1" ;;
  esac
  shift
  local entry more=
  for entry in "$@"; do more="$more, $entry"; done
  cat >recipe.yaml <<R
base: $(realpath "$here/../../recipes/survey/$base.yaml")
name: toy
data: {path: text.h5, context: 64}
model: {layers: 2, width: 32, heads: 2, $sizes}
train: {global_batch: 8, micro_batch: 2, lr: 1.0e-3, warmup: 5, seed: 3, log_every: 1, evaluate_windows: 8$more}
R
}
ranks() { # ranks N command...
  local n=$1; shift
  if [ "$n" = 1 ]; then "$@"; else mpirun --bind-to none -n "$n" "$@"; fi
}
train() { # train RANKS RUN [options]
  local n=$1 run=$2; shift 2
  ranks "$n" "$longstride" train recipe.yaml --run "$run" "$@" >train.log 2>&1 || { cat train.log; fail "train $n $run $*"; }
}
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([-0-9.e]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
same_bits() { # same_bits RUN RUN STEP: every file of the checkpoint but state.json, which holds the number of ranks
  local name a b
  name=checkpoints/step-$(printf %08d "$3")
  for a in "$1/$name"/*.safetensors; do
    b=$2/$name/${a##*/}
    cmp "$a" "$b" || fail "${a##*/} of $1 and $2 differ"
  done
}
wait_for_step() { # until RUN/metrics.jsonl has step N
  for _ in $(seq 3000); do
    if [ -f "$1/metrics.jsonl" ] && grep -q "\"step\":$2," "$1/metrics.jsonl"; then return; fi
    sleep 0.01
  done
  fail "$1 never reached step $2"
}
last_checkpoint() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([1-9][0-9]*\)$/\1/p' | sort -n | tail -n 1 | grep . || echo 0; }
resume_of() { if [ "$(last_checkpoint "$1")" != 0 ]; then echo --resume; fi; }
saving() { compgen -G "$1/checkpoints/.tmp-step-*" >/dev/null; } # a checkpoint of RUN is being written
children_of() { # pids, in the order in which they were started
  local stat line
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } 2>/dev/null || continue
    line=${line##*) }  # after the name: state, parent, ...
    set -- "$1" $line
    [ "$3" != "$1" ] || echo "${stat//[^0-9]/}"
  done | sort -n
}
