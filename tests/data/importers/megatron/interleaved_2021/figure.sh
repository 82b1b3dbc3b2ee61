#!/bin/bash
# 175 billion parameters with and without interleaving, in the manner of 2021.
INTERLEAVED=YES

if [ ${INTERLEAVED} == "YES" ]; then
    EXTRA="--activations-checkpoint-method uniform --num-layers-per-virtual-pipeline-stage 2 "
elif [ ${INTERLEAVED} == "NO" ]; then
    EXTRA="--activations-checkpoint-method uniform "
else
    echo "neither yes nor no"
    exit 1
fi

TP=8
PP=12
MICRO=1
BATCH=24
LAYERS=96
NNODES=12

. `pwd`/named/common.sh

exit 0
