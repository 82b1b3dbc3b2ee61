"""What is known of each argument of Megatron-LM, Megatron-Core and Megatron-DeepSpeed."""

from __future__ import annotations

from trainsim.importers.importer import Key, no_effect, not_modelled, read

_READ = {
    "model.layers": "--num-layers --encoder-num-layers --decoder-num-layers",
    "model.hidden": "--hidden-size",
    "model.heads": "--num-attention-heads",
    "model.ffn_hidden": "--ffn-hidden-size",
    "model.head_dim": "--kv-channels",
    "model.kv_heads": "--group-query-attention --num-query-groups --num-key-value-heads",
    "model.gated_mlp, model.activation": "--swiglu --quick-geglu --squared-relu --openai-gelu --glu-activation",
    "model.norm": "--normalization --apply-layernorm-1p",
    "model.biases": "--disable-bias-linear --add-qkv-bias",
    "model.positions": "--position-embedding-type --use-rotary-position-embeddings --no-position-embedding",
    "model.max_positions": "--max-position-embeddings",
    "model.rotary_share": "--rotary-percent",
    "model.tied_embeddings": "--untie-embeddings-and-output-weights",
    "model.embedding_norm": "--embed-layernorm",
    "model.qk_norm": "--qk-layernorm --qk-l2-norm",
    "model.attention_sinks": "--softmax-type",
    "model.window": "--window-size --window-attn-skip-freq",
    "model.dropout": "--attention-dropout --hidden-dropout",
    "model.vocab": "--vocab-size --padded-vocab-size --pad-vocab-size-to --extra-vocab-size --vocab-extra-ids",
    "model.vocab, by a table of common tokenizers":
        "--tokenizer-type --tokenizer-model --tokenizer-name-or-path --patch-tokenizer-type --vocab-file",
    "framework.kernels.vocab_multiple": "--make-vocab-size-divisible-by",
    "model.mla": "--multi-latent-attention --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim "
                 "--v-head-dim --qk-nope-head-dim --qk-rope-head-dim",
    "model.mtp_layers": "--mtp-num-layers",
    "model.moe": "--num-experts --moe-router-topk --moe-ffn-hidden-size --moe-shared-expert-intermediate-size "
                 "--moe-shared-expert-gate --topk",
    "model.moe.first_dense or model.layer_pattern": "--moe-layer-freq",
    "parallel.tp": "--tensor-model-parallel-size --model-parallel-size",
    "parallel.pp": "--pipeline-model-parallel-size --no-pipeline-parallel",
    "parallel.cp": "--context-parallel-size --ds-sequence-parallel-size",
    "parallel.context_parallel": "--cp-comm-type --hierarchical-context-parallel-sizes",
    "parallel.ep": "--expert-model-parallel-size --moe-expert-parallel-size",
    "parallel.etp": "--expert-tensor-parallel-size",
    "parallel.sequence_parallel": "--sequence-parallel",
    "parallel.order": "--use-tp-pp-dp-mapping",
    "pipeline.chunks": "--num-layers-per-virtual-pipeline-stage --num-virtual-stages-per-pipeline-rank",
    "pipeline.layout": "--pipeline-model-parallel-layout --decoder-first-pipeline-num-layers "
                       "--decoder-last-pipeline-num-layers --account-for-embedding-in-pipeline-split "
                       "--account-for-loss-in-pipeline-split --standalone-embedding-stage --pp-partition-method",
    "pipeline.group": "--microbatch-group-size-per-virtual-pipeline-stage",
    "pipeline.p2p": "--no-overlap-p2p-communication",
    "pipeline.schedule": "--enable-zbh1-pipeline",
    "training.micro_batch": "--micro-batch-size",
    "training.global_batch": "--global-batch-size --step-batch-size-schedule",
    "reported: the steady step is simulated": "--rampup-batch-size",
    "training.sequence_length": "--seq-length --encoder-seq-length",
    "training.decoder_length": "--decoder-seq-length",
    "training.precision": "--fp16 --bf16 --fp8-format --fp8-recipe --fp4-format",
    "training.loss_scaling": "--loss-scale",
    "training.gradients": "--grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32 --main-grads-dtype "
                          "--megatron-fsdp-main-grads-dtype",
    "training.gradient_dtype": "--megatron-fsdp-grad-comm-dtype",
    "training.optimizer": "--optimizer --use-bnb-optimizer",
    "training.recompute": "--recompute-granularity --recompute-method --recompute-num-layers --recompute-modules "
                          "--recompute-activations --moe-layer-recompute --checkpoint-activations "
                          "--checkpoint-num-layers --activations-checkpoint-method --activations-checkpoint-num-layers",
    "training.activation_offload": "--cpu-offloading-num-layers --cpu-offloading --checkpoint-in-cpu",
    "training.attention": "--attention-backend --use-flash-attn --use-flash-attn-v1 --use-flash-attn-v2",
    "training.tp_overlap": "--tp-comm-overlap",
    "training.cuda_graphs": "--cuda-graph-impl --enable-cuda-graph --external-cuda-graph",
    "training.moe.dispatcher": "--moe-token-dispatcher-type --moe-flex-dispatcher-backend --moe-enable-deepep",
    "training.moe.capacity_factor, training.moe.pad_to_capacity":
        "--moe-expert-capacity-factor --moe-pad-expert-input-to-capacity",
    "training.moe.shared_overlap": "--moe-shared-expert-overlap",
    "training.moe_overlap": "--overlap-moe-expert-parallel-comm",
    "training.delay_wgrad": "--delay-wgrad-compute",
    "sharding.strategy": "--use-distributed-optimizer --use-megatron-fsdp --use-custom-fsdp --use-torch-fsdp2 "
                         "--data-parallel-sharding-strategy --zero-stage",
    "sharding.reshard_after_forward": "--torch-fsdp2-no-reshard-after-forward",
    "sharding.overlap": "--overlap-grad-reduce",
    "sharding.parameter_gather_overlap": "--overlap-param-gather",
    "sharding.instances": "--num-distributed-optimizer-instances",
    "sharding.reduce_bucket": "--ddp-bucket-size --zero-reduce-bucket-size",
    "sharding.offload": "--optimizer-cpu-offload --optimizer-offload-fraction --cpu-optimizer --remote-device",
    "framework": "--deepspeed --transformer-impl --use-mcore-models --use-legacy-models --DDP-impl",
    "framework: megatron-core-fused-loss": "--cross-entropy-loss-fusion --cross-entropy-fusion-impl",
    "the file, read as a further one": "--deepspeed_config",
    "cluster.gpus": "launch.--nnodes launch.--nproc_per_node launch.--num_nodes launch.--num_gpus sbatch.--nodes "
                    "sbatch.--gpus-per-node sbatch.--gpus launch.--nodes launch.--gpus-per-node",
    "framework: launches that block": "environment.CUDA_LAUNCH_BLOCKING",
    "cluster.nvls": "environment.NCCL_NVLS_ENABLE",
    "reported, where it hinders an overlap": "environment.CUDA_DEVICE_MAX_CONNECTIONS",
}  # fmt: skip
"""What follows from which arguments."""

_MISSING = {
    "state-space layers": "--hybrid-override-pattern --hybrid-attention-ratio --hybrid-mlp-ratio --is-hybrid-model "
                          "--mamba-state-dim --mamba-head-dim --mamba-num-groups --mamba-num-heads",
    "layers that a Python module or another file defines": "--spec --heterogeneous-layers-config-path "
                                                           "--heterogeneous-layers-config-encoded-json --yaml-cfg",
    "a retriever beside the transformer": "--retro-add-retriever --retro-project-dir",
    "a norm after the residual addition": "--apply-residual-connection-post-layernorm",
    "residual additions in fp32": "--fp32-residual-connection",
    "layers without rotary positions": "--no-rope-freq",
    "the loss in 16 bits": "--fp16-lm-cross-entropy",
    "first and last layers in bf16": "--first-last-layers-bf16",
    "weight gradients in 16 bits beside products in 8": "--no-fp8-wgrad",
    "parameters kept and gathered in 8 or 4 bits": "--fp8-param-gather --fp4-param-gather "
                                                   "--reuse-grad-buf-for-mxfp8-param-ag --keep-fp8-transpose-cache",
    "optimizer states in fewer bits": "--exp-avg-dtype --exp-avg-sq-dtype --main-params-dtype",
    "the head's weight gradients, moved into the pipeline's end": "--defer-embedding-wgrad-compute",
    "an overlap of the first gather with the update": "--overlap-param-gather-with-optimizer-step",
    "the number of buckets": "--ddp-num-buckets",
    "sums in fp32 of values that are sent in 16 bits": "--ddp-reduce-scatter-with-fp32-accumulation",
    "activations that recomputation keeps, cut over tp": "--distribute-saved-activations "
        "--distribute-checkpointed-activations --partition-activations --scattered-embeddings",
    "waits after each recomputed layer": "--synchronize-each-layer",
    "linear layers in tiles, layers in halves": "--memory-centric-tiled-linear --tile-factor --split-transformers",
    "which of tensor parallelism's overlaps are on": "--disable-tp-comm-overlap-ag --disable-tp-comm-overlap-rs "
        "--disable-tp-comm-bulk-dgrad --disable-tp-comm-bulk-wgrad --disable-tp-comm-split-ag "
        "--disable-tp-comm-split-rs --tp-comm-overlap-rs-dgrad --tp-comm-overlap-cfg",
    "messages without the cut over tp": "--no-scatter-gather-tensors-in-pipeline",
    "weight gradients that a kernel of their own adds up": "--no-gradient-accumulation-fusion",
    "kernels that are not fused": "--no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion "
                                  "--no-masked-softmax-fusion --no-rope-fusion",
    "kernels that are deterministic and slower": "--deterministic-mode",
    "states that are shared over all ranks of an hsdp": "--enable-full-sharding-in-hsdp",
    "memory that NCCL registers": "--use-nccl-ub",
    "reductions in the switches": "--use-sharp",
    "offload that overlaps with the update": "--overlap-cpu-optimizer-d2h-h2d",
    "masks between documents, whose lengths no file of Megatron says": "--reset-attention-mask",
    "rollouts of reinforcement learning": "--perform-rl-step --rl-**",
    "sequences whose length grows with the steps": "--curriculum-learning",
    "data routing that drops tokens": "--random-ltd",
    "distillation from a second model": "--kd --load-teacher --mos",
    "quantised communication (ZeRO++)": "--zero-quantized-weights --zero-quantized-gradients --zero-hpz-partition-size",
    "a softmax offset": "--glu-linear-offset",
    "NCCL's choices, other than its own": "environment.NCCL_ALGO environment.NCCL_PROTO "
                                          "environment.NCCL_P2P_DISABLE environment.NCCL_IB_DISABLE",
    "names of models of images, or of pairs of texts": "--vision-pretraining --img-h --img-w --num-classes "
        "--bert-load --ict-load --biencoder-projection-dim --biencoder-shared-query-context-model --img-dim",
}  # fmt: skip

_NONE = {
    "what is logged": "--log-* --no-log-* --tensorboard-* --wandb-* --timing-log-* --logging-level --one-logger-* "
        "--no-one-logger --app-tag-* --config-logger-dir --codecarbon-dir --no-barrier-with-level-1-timing "
        "--moe-per-layer-logging --straggler-* --disable-straggler-on-startup --run-workload-inspector-server "
        "--inference-* --max-tokens-to-oom --enable-one-logger",
    "checkpoints": "--save --load --save-* --no-save-* --no-load-* --ckpt-* --no-ckpt-* --dist-ckpt-* --use-dist-ckpt "
        "--async-save --async-strategy --use-persistent-ckpt-worker --auto-detect-ckpt-format --finetune "
        "--pretrained-checkpoint --non-persistent-* --exit-on-missing-checkpoint --use-checkpoint-* "
        "--no-use-tokenizer-model-from-checkpoint-args --no-initialization --load-main-params-from-ckpt "
        "--persistent-save-interval --use-mp-args-from-checkpoint-args --replication* --no-strict-fsdp-dtensor-load "
        "--distrib-optim-fully-reshardable-mem-efficient --universal-checkpoint --verify-* --use-upcycling "
        "--moe-use-upcycling --moe-upcycling-granularity",
    "when training ends or is checked": "--train-iters --train-samples --train-tokens --exit-* --eval-* "
        "--full-validation --multiple-validation-sets --test-mode --skip-train* --iterations-to-skip "
        "--kill-switch-path --adlr-autoresume* --rerun-mode --error-injection-* --result-rejected-tracker-filename "
        "--check-weight-hash-across-dp-replicas-interval --no-check-for-nan-in-loss-and-grad --check-for-* "
        "--inprocess-* --enable-ft-package --calc-ft-timeouts --train-mode --decrease-batch-size-if-needed",
    "numbers of the optimizer, without a cost": "--lr --lr-* --min-lr --adam-* --weight-decay* --start-weight-decay "
        "--end-weight-decay --clip-grad --sgd-momentum --muon-* --decoupled-* --warmup --override-* "
        "--initial-loss-scale --min-loss-scale --loss-scale-window --hysteresis --no-weight-decay*",
    "values of weights, not their number": "--init-method-* --embedding-init-method-std --seed "
        "--data-parallel-random-init --use-cpu-initialization --init-model-with-meta-device --norm-epsilon "
        "--layernorm-epsilon --hidden-size-scale",
    "angles of rotary positions, not their cost": "--rotary-base --rotary-interleaved --rotary-scaling-factor "
        "--rotary-seq-len-interpolation-factor --use-rope-scaling --rope-* --mscale --mscale-all-dim --mrope-section "
        "--original-max-position-embeddings --relative-attention-*",
    "where the data comes from": "--data-path --train-data-path --valid-data-path --test-data-path --data-* --split "
        "--per-split-data-args-path --mock-data --dataloader-type --no-mmap-bin-files --mmap-warmup --merge-file "
        "--tokenizer-metadata --tiktoken-* --legacy-tokenizer --trust-remote-code --sample-rate --mask-prob "
        "--short-seq-prob --reset-position-ids --eod-mask-loss --loss-on-targets-only --dataset --max-padding-length "
        "--train-weighted-split-paths* --valid-weighted-split-paths* --test-weighted-split-paths* --num-dataset-* "
        "--object-storage-cache-path --mid-level-dataset-surplus --allow-ambiguous-pad-tokens --abort-on-* "
        "--no-create-attention-mask-in-dataloader --reweight-loss-based-on-position-frequency --defer-npy-index-mmap "
        "--retriever-* --dataloader-*",
    "processes that load data, which are assumed to keep up": "--num-workers --valid-num-workers",
    "how processes find each other": "--distributed-backend --distributed-timeout-* --local-rank --local_rank "
        "--lazy-mpu-init --nccl-communicator-config-path --disable-gloo-process-groups --tp-comm-bootstrap-backend "
        "--pipeline-model-parallel-comm-backend --use-ring-exchange-p2p --high-priority-stream-groups "
        "--ddp-average-in-collective --ddp-pad-buckets-for-high-nccl-busbw --no-align-* --disable-msc",
    "the garbage collector, which is assumed not to get in the way": "--manual-gc --manual-gc-interval "
        "--no-manual-gc-eval --empty-unused-memory-level --train-sync-interval",
    "a scale of the loss or of its gradients": "--calculate-per-token-loss --mtp-loss-scaling-factor "
        "--no-gradient-reduce-div-fusion --no-query-key-layer-scaling --apply-query-key-layer-scaling "
        "--attention-softmax-in-fp32 --disable-bf16-reduced-precision-matmul --activation-func-clamp-value",
    "losses of a router, a few operations per token": "--moe-aux-loss-coeff --moe-z-loss-coeff --moe-loss-coeff "
        "--moe-router-load-balancing-type --moe-router-force-load-balancing --moe-router-enable-expert-bias "
        "--moe-router-bias-update-rate --moe-router-score-function --moe-router-pre-softmax --moe-router-num-groups "
        "--moe-router-group-topk --moe-router-topk-scaling-factor --moe-router-topk-limited-devices "
        "--moe-router-dtype --moe-input-jitter-eps --moe-token-drop-policy --moe-apply-probs-on-input "
        "--moe-router-fusion --moe-router-padding-for-fp8",
    "kernels that the profile has anyway": "--moe-grouped-gemm --moe-use-legacy-grouped-gemm --moe-permute-fusion "
        "--moe-deepep-num-sms --moe-hybridep-num-sms --no-persist-layer-norm --use-te-activation-func "
        "--use-fused-weighted-squared-relu --no-async-tensor-model-parallel-allreduce --te-rng-tracker "
        "--inference-rng-tracker --cuda-graph-warmup-steps --cuda-graph-scope --no-clone-scatter-output-in-embedding "
        "--use-contiguous-buffers-in-ddp --wgrad-deferral-limit --fsdp-double-buffer "
        "--suggested-communication-unit-size --disable-symmetric-registration --sharp-enabled-group "
        "--overlap-p2p-communication-warmup-flush --use-precision-aware-optimizer --no-pin-cpu-* "
        "--use-torch-optimizer-for-cpu-offload --cpu_torch_adam --use-pin-memory --zero-contigious-gradients "
        "--zero-reduce-scatter --zero-allgather-bucket-size --contigious-checkpointing "
        "--deepspeed-activation-checkpointing --sync-tp-duplicated-parameters --moe-extended-tp "
        "--num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16 --group-query-attention-fusion",
    "how 8-bit numbers are scaled": "--fp8-margin --fp8-interval --fp8-amax-* --fp8-quantizer-factory --fp4-recipe "
        "--fp4-quantizer-factory",
    "profiling and debugging": "--profile* --use-pytorch-profiler --record-memory-history --memory-snapshot-path "
        "--dump-param-to-param-group-map --enable-experimental --onnx-safe --bert-no-binary-head --inference",
    "of the launcher": "launch.** sbatch.** environment.*",
}  # fmt: skip

KEYS: tuple[Key, ...] = (
    *(read(name, becomes) for becomes, names in _READ.items() for name in names.split()),
    *(key for what, names in _MISSING.items() for key in not_modelled(what, *names.split(), harmless=(False, "fp32"))),
    *(key for why, names in _NONE.items() for key in no_effect(why, *names.split())),
)
"""All of them; ``launch``, ``sbatch`` and ``environment`` are the launcher's, the scheduler's and exported."""
