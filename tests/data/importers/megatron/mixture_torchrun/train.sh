#!/bin/bash
# A mixture of 8 experts in 32 layers on four nodes of eight.
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"4"}
HOST=${MASTER_ADDR:-"localhost"}

CHECKPOINTS=$1
TOKENIZER=$2
DATA=$3

LAUNCH=(--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_addr $HOST)

MODEL=(
    --use-mcore-models --disable-bias-linear
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 4096 --max-position-embeddings 32768
    --normalization RMSNorm --swiglu
    --position-embedding-type rope --no-position-embedding --rotary-base 1000000
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
)

EXPERTS=(
    --num-experts 8 \
    --moe-router-topk 2 \
    --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --expert-model-parallel-size 8
)

TRAINING=(
    --micro-batch-size 1 --global-batch-size 256
    --lr 1e-4 --train-iters 500000 --bf16
    --overlap-grad-reduce --overlap-param-gather
)

PARALLEL=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 2   # layers of a chunk
    --use-distributed-optimizer
    --sequence-parallel
)

LOGS=(--log-interval 1 --save $CHECKPOINTS --load $CHECKPOINTS)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGS+=(--wandb-project ${WANDB_PROJECT:-"mixture"})
fi

torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${MODEL[@]} \
    ${EXPERTS[@]} \
    --tokenizer-type Llama2Tokenizer --tokenizer-model ${TOKENIZER} --data-path $DATA --split 99990,8,2 \
    ${TRAINING[@]} \
    ${PARALLEL[@]} \
    "${LOGS[@]}"
