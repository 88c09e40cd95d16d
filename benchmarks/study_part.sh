#!/usr/bin/env bash
# Run one part of a study on a machine that is yours for some minutes and keeps no files.
#
#     benchmarks/study_part.sh experiments/rooms.toml benchmarks/log/rooms-study.tar.gz 8 \
#         --jobs 12 --set 'seed=[0,1]' noise=sticky
#
# Unpacks the archive of the finished runs, sweeps for 8 minutes, begins no run that would not
# finish, and packs all finished runs into the archive, or into $OUT if that is set. What follows
# the minutes goes to `ssedb sweep`. $PYTHON names the Python to use.
set -euo pipefail

grid=$1 archive=$2 minutes=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1

# Under MPS the kernels of several processes share the GPU.
if command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d; then
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi

packed=$archive
if [ -n "${OUT:-}" ]; then
    mkdir -p "$OUT"
    packed=$OUT/$(basename "$archive")
    if [ -e "$archive" ]; then cp "$archive" "$packed"; fi
fi
mkdir -p runs
if [ -e "$packed" ]; then tar xzf "$packed" -C runs; fi

runs=runs/$(basename "$grid" .toml)
status=0
"$python" -m ssedb sweep "$grid" --out "$runs" --minutes "$minutes" --whole "$@" || status=$?
"$python" "$here/pack_study.py" "$runs" "$packed"
exit $status
