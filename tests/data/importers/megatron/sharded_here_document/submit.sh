#!/bin/bash
# Submits a job whose script stands below; fully sharded.
NODES=${NODES:-16}
STRATEGY=${STRATEGY:-optim_grads_params}
FULLY=${FULLY:-1}
PROFILE=${PROFILE:-0}

ARGS=(
    --num-layers 28 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32
    --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --hidden-dropout 0.0 --attention-dropout 0.0 --bf16
    --micro-batch-size 2 --global-batch-size 512
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-2-7b-hf
    --overlap-grad-reduce --overlap-param-gather --use-mcore-models
)

if [ "${FULLY}" = 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    ARGS=(
        "${ARGS[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${STRATEGY}
        --no-gradient-accumulation-fusion
        --megatron-fsdp-grad-comm-dtype bf16
        --megatron-fsdp-main-grads-dtype fp32
    )
fi

if [ "${PROFILE}" = 1 ]; then
    ARGS=("${ARGS[@]}" --profile)
fi

RUN="
cd ${CODE};
python pretrain_gpt.py ${ARGS[@]}"

sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=${NODES}
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8

srun -l bash -c "${RUN}" 2>&1 | tee log-\${SLURM_JOB_ID}.txt
EOT
