#!/bin/sh
# The kernels of steps of a few tokens, two builds in turns: sh bench/few.sh MODEL OLD.mjs NEW.mjs [SIZES]
set -e
model=$1; old=$2; new=$3; sizes=${4:-"2 4 8 16 32"}
folder=$(mktemp -d)
node "$new" doctor --device webgpu | grep "found by running" || true
for n in 1 $sizes; do
  prompt=""; [ "$n" = 1 ] || prompt="--prompt $n"
  for turn in old1 new1 old2 new2; do
    case $turn in old*) build=$old ;; *) build=$new ;; esac
    node "$build" profile --model "$model" --device webgpu --profile h200 $prompt --json > "$folder/$turn-$n.json"
  done
  echo "== $n: old, new, old, new"
  node "$(dirname "$0")/few.ts" "$folder/old1-$n.json" "$folder/new1-$n.json" "$folder/old2-$n.json" "$folder/new2-$n.json"
done
