# The packages that Longstride needs, by their names in Debian 12 and Ubuntu 24.04, and how it is configured. Sourced by
# quickstart.sh and test.sh.
longstride_packages=(
  g++ cmake ninja-build pkg-config git ca-certificates xz-utils
  libopenmpi-dev openmpi-bin libhdf5-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev
  libopenblas-dev libpng-dev zlib1g-dev libssl-dev libarchive-dev libsndfile1-dev libsoxr-dev
  libjpeg-dev libwebp-dev libsentencepiece-dev
)
# For the fuzzers: clang and its runtime. To imitate hosts by network namespaces: ip.
longstride_slow_packages=(clang libclang-rt-dev iproute2)

# install_packages NAME...: installs those that are missing, as root or with sudo.
install_packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    echo "longstride: these packages are missing, and there is no apt-get to install them: ${missing[*]}" >&2
    return 2
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "longstride: run this as root or install sudo; missing packages: ${missing[*]}" >&2
      return 2
    fi
    as_root=(sudo)
  fi
  echo "== Installing ${#missing[@]} packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# is_of_this_tree BUILD: whether CMake made this folder for the tree it is in. One that was copied or moved with its
# tree would compile the sources of the tree that it came from.
is_of_this_tree() {
  local made_for
  made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$1/CMakeCache.txt" 2>/dev/null) && [ "$made_for" -ef . ]
}

# without_gpu: succeeds if kernels for GPUs are to be left out, as where there is no GPU; LONGSTRIDE_CUDA=1 builds them
# anyway.
without_gpu() { [ "${LONGSTRIDE_CUDA:-0}" != 1 ] && ! nvidia-smi >/dev/null 2>&1; }

# configure BUILD OPTION...: runs CMake in the source tree, and says something only if it fails.
configure() {
  local build=$1 fresh=()
  shift
  [ ! -f "$build/CMakeCache.txt" ] || is_of_this_tree "$build" || fresh=(--fresh)
  mkdir -p "$build"
  cmake ${fresh[@]+"${fresh[@]}"} -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" \
    >"$build/configure.log" 2>&1 || { cat "$build/configure.log" >&2; return 1; }
}
