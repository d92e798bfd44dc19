#!/usr/bin/env bash
# Prints the manual page of `longstride`, made from what --help says of every command.
#   man_page.sh LONGSTRIDE >longstride.1
set -euo pipefail
[ $# -eq 1 ] && [ -x "$1" ] || { echo "longstride: man_page.sh needs the program, as in man_page.sh build/longstride" >&2; exit 2; }
command=$1

# One command's help as roff: its description, usage, and every option with what it does.
page() {
  "$command" "$@" --help | awk '
    function plain(text) {
      gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text)
      return text ~ /^[.\x27]/ ? "\\\\&" text : text
    }
    function item(head, text) { print ".TP"; print ".B " plain(head); if (text != "") print plain(text) }
    NR == 1 { print plain($0); next }
    /^Usage: / { print ".PP"; print ".B " plain(substr($0, 8)); next }
    /^[A-Z].*:$/ { skipped = $0 == "Subcommands:"; next }
    skipped || /^$/ || /--help/ { next }
    /^  [^ ]/ {
      line = substr($0, 3); at = match(line, /  +/)
      if (at) item(substr(line, 1, at - 1), substr(line, at + RLENGTH)); else item(line, "")
      next
    }
    { sub(/^ +/, ""); print plain($0) }'
}

commands() { "$command" "$@" --help | sed -n '/^Subcommands:/,$ s/^  \([a-z0-9]\{1,\}\) .*/\1/p'; }

describe() {
  echo ".SS longstride $*"
  page "$@"
  local next
  for next in $(commands "$@"); do describe "$@" "$next"; done
}

version=$("$command" --version)
cat <<ROFF
.TH LONGSTRIDE 1 "" "$version" "User Commands"
.SH NAME
longstride \- train models on very long sequences of bytes, pixels and samples
.SH DESCRIPTION
$(page)
.SH COMMANDS
ROFF
for name in $(commands); do describe "$name"; done
cat <<'ROFF'
.SH EXIT STATUS
0: success. 1: a fault of the program. 2: a mistake that the message explains. 3: a training that has diverged.
.SH SEE ALSO
The pages of docs/guide, which are installed with the program.
ROFF
