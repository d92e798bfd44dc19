#!/usr/bin/env bash
# Builds the packages of the last commit on a bare system, installs them on another, trains with the installed command,
# and removes it.
# Needs root, the network and debootstrap; takes about half an hour the first time. Prints "passed" at the end.
#
#   try.sh debian12 [FOLDER]       FOLDER (default: build/packages) keeps the systems for the next time, and gets the
#   try.sh ubuntu24.04 [FOLDER]    packages that were tried
set -euo pipefail
source_tree=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
release=${1:-}
mkdir -p "${2:-$source_tree/build/packages}"
folder=$(CDPATH= cd -- "${2:-$source_tree/build/packages}" && pwd)
case $release in
  debian12) suite=bookworm mirror=http://deb.debian.org/debian components=main keys=debian-archive-keyring ;;
  ubuntu24.04)
    suite=noble mirror=http://archive.ubuntu.com/ubuntu components=main,universe keys=ubuntu-archive-keyring ;;
  *) sed -n '2,7p' "${BASH_SOURCE[0]}" | cut -c 3- >&2; exit 2 ;;
esac
[ "$(id -u)" -eq 0 ] || { echo "try.sh: needs root, for chroot" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "try.sh: needs debootstrap: apt-get install debootstrap" >&2; exit 77; }
# Mounts are this script's own and end with it.
[ -n "${LONGSTRIDE_OWN_MOUNTS:-}" ] || exec env LONGSTRIDE_OWN_MOUNTS=1 unshare --mount "$0" "$@"
bare=$folder/$release builder=$folder/$release-build installed=$folder/$release-installed
export DEBIAN_FRONTEND=noninteractive LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

say() { echo "== $release: $*"; }
fail() { echo "try.sh: $*" >&2; exit 1; }
in_root() { local root=$1; shift; chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
mount_in() {
  mkdir -p "$1/proc" "$1/dev" "$1/sys"
  mount --bind -o ro /sys "$1/sys"
  mount -t proc proc "$1/proc"
  mount --bind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/dev/shm"
  mount -t devpts devpts "$1/dev/pts"
}
if [ ! -e "$bare/etc/os-release" ]; then
  say "a bare system"
  ring=$(find /usr/share/keyrings "${KEYRINGS:-/usr/share/keyrings}" -name "$keys*.gpg" | head -n 1)
  [ -n "$ring" ] || fail "no $keys.gpg: install the package, or name its folder in KEYRINGS"
  script=()  # an older debootstrap has no script of a newer release, but they have not changed
  [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/jammy)
  rm -rf "$bare.new"
  debootstrap --variant=minbase "--components=$components" "--keyring=$ring" "$suite" "$bare.new" "$mirror" \
    ${script[@]+"${script[@]}"} >"$bare.log" || { tail "$bare.log" >&2; exit 1; }
  mv "$bare.new" "$bare"
fi

say "building packages"
[ -d "$builder" ] || { cp -a "$bare" "$builder.new" && mv "$builder.new" "$builder"; }
cp /etc/resolv.conf "$builder/etc/resolv.conf"
mount_in "$builder"
in_root "$builder" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends git ca-certificates' \
  >"$builder.log" || fail "see $builder.log"
tree=$builder/root/longstride
[ -d "$tree/.git" ] || git clone -q "$source_tree" "$tree"
git -C "$tree" fetch -q "$source_tree" HEAD && git -C "$tree" reset -q --hard FETCH_HEAD
in_root "$builder" bash /root/longstride/launch/containers/build.sh /root/packages qemu-user >>"$builder.log" 2>&1 ||
  { tail "$builder.log" >&2; exit 1; }
rm -rf "${folder:?}/$release-packages" && mkdir "$folder/$release-packages"
cp "$builder"/root/longstride/build/package/longstride*.{deb,tar.gz} "$folder/$release-packages/"
package=$(basename "$folder/$release-packages"/*.deb) archive=$(basename "$folder/$release-packages"/*.tar.gz)
files=$folder/$release-files
{ dpkg -c "$folder/$release-packages/$package" && tar -tvf "$folder/$release-packages/$archive"; } >"$files"
! grep '^d' "$files" | grep -vq '^drwxr-xr-x' || fail "the umask decides who may enter folders: see $files"
! dpkg-deb --fsys-tarfile "$folder/$release-packages/$package" | grep -aqF "${tree#"$builder"}" ||
  fail "the package names the folder of its sources, ${tree#"$builder"}"
dpkg -I "$folder/$release-packages/$package" | grep -E 'Version|Installed-Size|Depends|Recommends'

say "find_package, and processors that are too old or just enough"
cp -r "$source_tree/tests/packages/consumer" "$builder/root/"
in_root "$builder" dpkg -i "/root/longstride/build/package/$package" >/dev/null
in_root "$builder" sh -c 'rm -rf /tmp/b && cmake -S /root/consumer -B /tmp/b >/dev/null && cmake --build /tmp/b &&
  ctest --test-dir /tmp/b' >>"$builder.log" 2>&1 || { tail "$builder.log" >&2; exit 1; }
code=0 && in_root "$builder" qemu-x86_64 -cpu Nehalem /usr/bin/longstride --version 2>"$folder/said" || code=$?
[ "$code" -eq 2 ] && grep -q '^longstride: this processor lacks AVX, .*x86-64-v3' "$folder/said" ||
  fail "on an old processor: exit code $code and '$(cat "$folder/said")'"
in_root "$builder" qemu-x86_64 -cpu Haswell /usr/bin/longstride --version 2>/dev/null | grep -q '^longstride [0-9]' ||
  fail "does not run on Haswell"
in_root "$builder" dpkg -P longstride >/dev/null

say "installing on a bare system"
rm -rf --one-file-system "$installed" && cp -a "$bare" "$installed"
cp /etc/resolv.conf "$installed/etc/resolv.conf"
mount_in "$installed"
in_root "$installed" apt-get update -qq
cp "$folder/$release-packages/$package" "$installed/tmp/"
in_root "$installed" apt-get install -qq --simulate "/tmp/$package" >"$installed.log" 2>&1 ||
  { tail "$installed.log" >&2; exit 1; }
# The libraries come first, so that what the command leaves can be told from what they would.
depends=$(dpkg-deb -f "$folder/$release-packages/$package" Depends)
read -ra libraries <<<"$(sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g' <<<"$depends")"
in_root "$installed" apt-get install -y -qq --no-install-recommends "${libraries[@]}" openmpi-bin \
  >>"$installed.log" 2>&1 || { tail "$installed.log" >&2; exit 1; }
files_of() { # all but the package manager's own notes
  (cd "$1" && find . -xdev ! -path './var/lib/dpkg/*' ! -path './var/lib/apt/*' ! -path './var/cache/*' \
    ! -path './var/log/*' ! -path './dev/*' ! -path './proc/*' ! -path './sys/*' ! -path './tmp/*' | sort)
}
files_of "$installed" >"$folder/$release-before"
in_root "$installed" apt-get install -y -qq "/tmp/$package" >>"$installed.log" 2>&1 ||
  { tail "$installed.log" >&2; exit 1; }
rm "$installed/tmp/$package"

say "training quickstart's recipe"
cat >"$installed/root/use.sh" <<'USE'
set -euo pipefail
cd /root/try
recipe=/usr/share/longstride/recipes/quickstart/text.yaml
longstride --version
longstride prepare bytes --input /usr/share/doc/longstride --split 0.9,0.05,0.05 --output text.h5
longstride train "$recipe" --set data.path=text.h5 --run run
longstride eval run --split test
longstride sample run --count 1 --length 200 --output samples
mpirun -n 2 longstride train "$recipe" --set data.path=text.h5 --set train.steps=3 --set train.warmup=1 --run two \
  --device cpu
source /usr/share/bash-completion/completions/longstride
COMP_WORDS=(longstride prep) COMP_CWORD=1
_longstride longstride
[ "${COMPREPLY[*]}" = prepare ]
USE
mkdir "$installed/root/try"
in_root "$installed" bash /root/use.sh >"$installed/root/try/log" 2>&1 ||
  { tail -n 20 "$installed/root/try/log" >&2; exit 1; }
grep 'test split' "$installed/root/try/log"
bits=$(sed -n 's/.*: \([0-9.]*\) bits per byte.*/\1/p' "$installed/root/try/log" | tail -n 1)
awk -v bits="$bits" 'BEGIN { exit !(bits > 1 && bits < 3.5) }' || fail "$bits bits per byte after quickstart's recipe"

say "the archive, unpacked elsewhere"
in_root "$installed" apt-get purge -y -qq longstride >>"$installed.log" 2>&1
mkdir "$installed/opt/try"
tar -C "$installed/opt/try" --strip-components=1 -xf "$folder/$release-packages/$archive"
in_root "$installed" /opt/try/bin/longstride plan /opt/try/share/longstride/recipes/quickstart/text.yaml --device cpu |
  grep -q quickstart-text || fail "the archive's command does not run"

say "removed without a trace"
rm -rf "$installed/opt/try" "$installed/root/try" "$installed/root/use.sh"
files_of "$installed" >"$folder/$release-after"
diff "$folder/$release-before" "$folder/$release-after" >"$folder/$release-traces" ||
  fail "files differ from before: $(head -n 20 "$folder/$release-traces")"
say "passed: $package, $archive"
