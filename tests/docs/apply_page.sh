#!/usr/bin/env bash
# Makes the changes that a page describes, in a copy of the sources.
#
#   apply_page.sh PAGE SOURCE OUT
#
# A comment of the page says where the code block below it belongs:
#     <!-- patch FILE before|after|instead of: TEXT -->           TEXT is in one line of FILE; with " #2", in the second
#     <!-- file FILE -->                                          the block is all of FILE, which is new
# Patched files that are not in OUT yet are first copied from SOURCE. Fails if a line is not found, or is found twice,
# or if no code block follows.
set -euo pipefail
page=$1 source=$2 out=$3
snippet=$(mktemp)
trap 'rm -f "$snippet"' EXIT
changes=0
while IFS= read -r comment; do
  number=${comment%%:*} text=${comment#*:}
  kind=${text#<!-- } kind=${kind%% *}
  text=${text#<!-- "$kind" } text=${text% -->}
  file=${text%% *} rest=${text#* }
  how=${rest%%: *} anchor=${rest#*: }
  nth=0
  if [[ $anchor =~ ^(.*)\ \#([0-9]+)$ ]]; then anchor=${BASH_REMATCH[1]} nth=${BASH_REMATCH[2]}; fi
  # The block: indented lines after the comment, without their indentation, and the blank lines between them.
  awk -v from="$number" '
    NR <= from { next }
    !NF { if (seen) blank = blank "\n"; next }
    /^    / { printf "%s", blank; blank = ""; print substr($0, 5); seen = 1; next }
    { exit }' "$page" >"$snippet"
  [ -s "$snippet" ] || { echo "$page:$number: no code block follows" >&2; exit 1; }
  changes=$((changes + 1))
  if [ "$kind" = file ]; then
    [ ! -e "$source/$file" ] || { echo "$page:$number: $file is not new" >&2; exit 1; }
    mkdir -p "$out/$(dirname "$file")" && cp "$snippet" "$out/$file"
    continue
  fi
  [ -f "$out/$file" ] || { mkdir -p "$out/$(dirname "$file")" && cp "$source/$file" "$out/$file"; }
  ANCHOR=$anchor awk -v how="$how" -v nth="$nth" -v snippet="$snippet" '
    function insert(line) { while ((getline line < snippet) > 0) print line; close(snippet) }
    index($0, ENVIRON["ANCHOR"]) == 0 { print; next }
    { ++found }
    nth > 0 && found != nth { print; next }
    how == "before" { insert(); print }
    how == "after" { print; insert() }
    how == "instead of" { insert() }
    END { if (nth > 0 ? found < nth : found != 1) exit 3; if (how !~ /^(before|after|instead of)$/) exit 4 }
  ' "$out/$file" >"$out/$file.new" ||
    { echo "$page:$number: '$anchor' is not in exactly one line of $file" >&2; rm -f "$out/$file.new"; exit 1; }
  mv "$out/$file.new" "$out/$file"
done < <(grep -nE '^<!-- (patch|file) ' "$page")
[ "$changes" -gt 0 ] || { echo "$page: describes no change" >&2; exit 1; }
