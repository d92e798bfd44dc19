#!/usr/bin/env bash
# several_gpus.sh with fakes for the GPUs, mpirun and the program: every comparison of speeds is made and printed.
set -euo pipefail
here=$(CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/build/tests"
printf '#!/bin/sh\nfor gpu in 0 1 2 3; do echo "GPU $gpu"; done\n' >"$work/bin/nvidia-smi"
# Like the real one, it reads all of standard input.
cat >"$work/bin/mpirun" <<'M'
#!/bin/sh
cat >/dev/null
echo '{"milliseconds": 200.0,'
echo '"exchange_milliseconds": 10.0,'
echo '"tokens_per_second": 400.0}'
M
printf '#!/bin/sh\n' | tee "$work/build/longstride" >"$work/build/tests/test_distributed"
chmod +x "$work"/bin/* "$work/build/longstride" "$work/build/tests/test_distributed"
cd "$work"
PATH=$work/bin:$PATH COUNTS="2 4" bash "$here/several_gpus.sh" build speed | tee said
[ "$(grep -c 'efficiency 100.00% (of their mean 100.00%), [12]00 tokens/s per GPU, exchange alone 10.00 ms, not hidden 0%' said)" = 12 ]
[ "$(ls)" = $'bin\nbuild\nsaid' ]
