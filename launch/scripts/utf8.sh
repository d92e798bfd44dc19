#!/usr/bin/env bash
# Copies a file or a folder of texts in mixed encodings as UTF-8, which `longstride prepare bytes` takes: UTF-16 with a
# byte order mark or without, Windows-1252 (and so Latin-1), and UTF-8, which loses its mark. Files that are no text are
# copied as they are.
#   utf8.sh FROM TO         TO must not exist
#   utf8.sh --check FROM    prints how many files are not in UTF-8
set -euo pipefail
refuse() { echo "longstride: $1" >&2; exit 2; }

encoding_of() {
  local first zeros
  first=$(head -c 4 -- "$1" | od -An -v -tx1 | tr -d ' \n')
  zeros=$(head -c 4096 -- "$1" | tr -d -c '\0' | wc -c)
  case $first in
    fffe* | feff*) echo UTF-16 ;;
    efbbbf*) echo marked ;;
    00??00??) echo UTF-16BE ;;
    ??00??00) echo UTF-16LE ;;
    *) if [ "$zeros" -gt 0 ]; then echo other
       elif iconv -f UTF-8 -t UTF-8 -- "$1" >/dev/null 2>&1; then echo UTF-8
       else echo WINDOWS-1252; fi ;;
  esac
}

copy() {
  case $3 in
    UTF-8 | other) cp -- "$1" "$2" ;;
    marked) tail -c +4 -- "$1" >"$2" ;;
    *) iconv -c -f "$3" -t UTF-8 -- "$1" >"$2" ;;
  esac
}

[ $# -eq 2 ] || refuse "utf8.sh needs two arguments, as in utf8.sh texts texts-utf8"
if [ "$1" = --check ]; then
  from=$2 to=""
else
  from=$1 to=$2
fi
[ -e "$from" ] || refuse "$from: does not exist; name a file or a folder of texts"
[ -z "$to" ] || [ ! -e "$to" ] || refuse "$to: exists; name another place for the copy"

declare -A count=()
changed=0
while IFS= read -r -d '' file; do
  encoding=$(encoding_of "$file")
  count[$encoding]=$((${count[$encoding]-0} + 1))
  case $encoding in UTF-8 | other) ;; *) changed=$((changed + 1)) ;; esac
  [ -n "$to" ] || continue
  place=$to${file#"$from"}
  mkdir -p -- "$(dirname -- "$place")"
  copy "$file" "$place" "$encoding"
done < <(find -L "$from" -type f -print0)
if [ -z "$to" ]; then echo "$changed"; exit 0; fi
for encoding in "${!count[@]}"; do
  case $encoding in
    UTF-8) ;;
    marked) echo "${count[$encoding]} in UTF-8 with a mark, which is left out" ;;
    other) echo "${count[$encoding]} are no text and stay as they are" ;;
    *) echo "${count[$encoding]} from $encoding" ;;
  esac
done | LC_ALL=C sort
