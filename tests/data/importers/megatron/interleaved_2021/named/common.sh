WIDTH=12288
options=" --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
    --num-layers ${LAYERS} --hidden-size ${WIDTH} --num-attention-heads 96 \
    --seq-length 2048 --max-position-embeddings 2048 --vocab-size 51200 \
    --micro-batch-size ${MICRO} --global-batch-size ${BATCH} \
    --train-iters 100 --fp16 --DDP-impl local ${EXTRA}"
srun -N ${NNODES} --ntasks-per-node=8 --gpus-per-node=8 python -u pretrain_gpt.py ${options}
