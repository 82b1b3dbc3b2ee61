#!/bin/bash
# Megatron-DeepSpeed without a pipeline: states on the host
cat <<'JSON' > zero.json
{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "fp16": {"enabled": true}
}
JSON

deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py \
    --no-pipeline-parallel --pipeline-model-parallel-size 1 --tensor-model-parallel-size 1 \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 \
    --micro-batch-size 4 --global-batch-size 256 --fp16 --num-experts 1 \
    --deepspeed --deepspeed_config zero.json --zero-stage 2 --cpu-optimizer \
    --checkpoint-activations --checkpoint-num-layers 2 --partition-activations
