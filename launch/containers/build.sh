#!/usr/bin/env bash
# Builds packages of the command on a bare Debian 12 or Ubuntu 24.04, as root: the first stage of Dockerfile and of
# longstride.def, and of tests/packages/try.sh. Where there is a CUDA toolkit, they have the kernels for GPUs.
#
#   build.sh PACKAGES [NAME ...]    PACKAGES: a folder for the packages; NAME: further packages of the system
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source launch/scripts/packages.sh
packages=$1
shift
[ "$(id -u)" -ne 0 ] || apt-get update -qq
install_packages "${longstride_packages[@]}" dpkg-dev file "$@"
preset=package
PATH=$PATH:/usr/local/cuda/bin
! command -v nvcc >/dev/null || preset=package-cuda
cmake --preset "$preset"
cmake --build --preset "$preset"
cd "build/$preset"
rm -rf _CPack_Packages ./*.deb ./*.tar.gz
(umask 077 && cpack)
mkdir -p "$packages"
cp longstride*.deb longstride*.tar.gz "$packages/"
