#!/bin/bash
# Eight billion parameters in 8 bits; context parallelism is the first argument.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
set -- ${1:-2} "${2:-fp8}"
CP=$1
NUMBERS=$2
TP=2
LENGTH=$((8 * 1024))
WORKERS=$((TP * CP > 2 ? 4 : 2))

args=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length $LENGTH --max-position-embeddings $LENGTH
    --position-embedding-type rope --rotary-percent 1.0
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --attention-backend fused
    --micro-batch-size 1 --global-batch-size 128
    --bf16 --grad-reduce-in-bf16
    --cross-entropy-loss-fusion --cross-entropy-fusion-impl te
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    --num-workers $WORKERS
)

case "$NUMBERS" in
    fp8) args+=("--fp8-format hybrid" "--fp8-amax-history-len 1024" --fp8-recipe delayed) ;;
    mxfp8) args+=(--fp8-format e4m3 --fp8-recipe mxfp8) ;;
    *) echo "numbers of 16 bits" ;;
esac

if [[ $TP -gt 1 ]]; then
    args+=(--sequence-parallel --tp-comm-overlap)
fi
args+=(--tensor-model-parallel-size $TP --context-parallel-size $CP --cp-comm-type a2a)

if [[ "${TOKENIZER:-none}" == none ]]; then
    args+=(--mock-data --tokenizer-type NullTokenizer --vocab-size 131072 "--split '99,1,0'")
else
    args+=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model $TOKENIZER)
fi

[ -f pretrain_gpt.py ] || echo "start me where pretrain_gpt.py is"

torchrun --standalone --nproc-per-node=8 --nnodes=1 pretrain_gpt.py ${args[@]} --cuda-graph-impl local
