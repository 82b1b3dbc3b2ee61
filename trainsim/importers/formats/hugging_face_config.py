"""
Hugging Face ``config.json``: the model, as its class in transformers builds it.
"""

from __future__ import annotations

from pathlib import Path

from trainsim.errors import ScenarioError, TrainsimError, shorten
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.models.hugging_face import FURTHER_TYPES, NAMES, as_mapping, classes


def sniff(source: Source) -> float:
    """Sure of a model_type beside sizes of layers."""
    data = source.data
    if not isinstance(data.get("model_type"), str) and not isinstance(data.get("architectures"), list):
        return 0.0
    sizes = ("hidden_size", "num_hidden_layers", *NAMES["hidden_size"], *NAMES["num_hidden_layers"], "text_config")
    return 0.95 if source.has(*sizes) else 0.3


def load(source: Source) -> Findings:
    """The model's mapping; keys that the class looks at are used."""
    document = source.document
    reader = Reader(document, KEYS)
    try:
        mapping, looked_at = as_mapping(document.data, Path(source.shown))
    except TrainsimError as error:
        key = next((k for k in document.data if f" {k} " in f"{str(error).partition(': ')[2]} "), "")
        line = document.origin.place((key,)) if key else ""
        raise ScenarioError(str(error).replace(f"{source.shown}: ", line, 1) if line else str(error)) from None
    reader.say("model", mapping)
    for key in sorted(looked_at, key=list(document.data).index):
        value = document.data[key]
        words = "" if isinstance(value, dict | list) else f": {value if isinstance(value, str) else shorten(value)}"
        reader.use(key, f"model ({mapping['family']}){words}")
    if layers := reader.raw("num_nextn_predict_layers"):
        words = f"the class does not build these {layers} layers; with them: --set model.mtp_layers={layers}"
        reader.warn("num_nextn_predict_layers", words)
    return reader.findings("hugging-face")


def _class_keys() -> tuple[str, ...]:
    """Every key that some class has a default for, or another name of."""
    named = {key for table in classes().values() for key in table["defaults"]}
    others = {other for usual, names in NAMES.items() for other in (usual, *names)}
    return tuple(sorted(named | others | set(FURTHER_TYPES)))


KEYS = (
    read("model_type", "model: the class whose rules hold"),
    read("architectures", "model: checked against model_type"),
    *(read(key, "model: where the class of model_type has it") for key in _class_keys()),
    *no_effect("of the checkpoint, not of a training step: training.precision says that", "torch_dtype", "dtype"),
    *no_effect("of the checkpoint", "quantization_config.**", "_name_or_path", "transformers_version", "auto_map.**"),
    *no_effect("values of weights, not their number", "initializer_range", "*_std", "init_*", "initializer_factor",
               "init_config.**", "embedding_fraction"),
    *no_effect("how its own code runs it; training.attention and framework say that here", "use_flash_attn",
               "flash_attn", "flash_rotary", "fused_dense", "attn_config.attn_impl", "attn_config.alibi*", "fp16",
               "bf16", "fp32"),
    *no_effect("tokens that have a meaning", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
               "unk_token_id", "decoder_start_token_id", "forced_*", "image_token_id"),
    *no_effect("generating text, not training it", "use_cache", "do_sample", "temperature", "top_p", "max_length",
               "num_return_sequences", "task_specific_params.**", "generation_config.**", "context_window_size",
               "prefill_chunk_size", "runner_max_sequence_length", "is_decoder", "cache_implementation", "top_k"),
    *no_effect("angles of rotary positions, not their cost", "rope_theta", "rope_scaling.**", "rope_parameters.**",
               "rope_local_base_freq", "original_max_position_embeddings", "rotary_emb_base", "rope_interleave"),
    *no_effect("numbers that scale or clip, without a cost", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
               "norm_eps", "attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
               "query_pre_attn_scalar", "scale_attn*", "routed_scaling_factor", "norm_topk_prob", "scoring_func",
               "logit_scale", "softmax_scale", "use_logn_attn", "use_dynamic_ntk", "attention_softmax_in_fp32",
               "scale_attention_softmax_in_fp32"),
    *no_effect("which experts a router may choose, not how many", "n_group", "topk_group", "topk_method",
               "moe_layer_freq", "ep_size", "num_routed_experts", "num_shared_experts"),
    *no_effect("losses of a router, a few operations per token", "router_aux_loss_coef", "output_router_logits",
               "aux_loss_alpha", "seq_aux", "router_jitter_noise", "input_jitter_noise"),
    *no_effect("what a call returns or how it is shown", "return_dict", "output_*", "id2label.**", "label2id.**",
               "problem_type", "finetuning_task", "gradient_checkpointing", "summary_*", "tokenizer_class",
               "attn_implementation", "_attn_implementation", "pretraining_tp", "use_return_dict", "torchscript",
               "tokenizer_name", "verbose", "name", "onnx_safe", "img_processor", "is_encoder_decoder",
               "chunk_size_feed_forward", "learned_pos_emb", "norm_type", "rotary"),
    *not_modelled("dropout inside attention: its random numbers take time in an eager kernel", "attention_dropout",
                  "attn_pdrop", "attention_probs_dropout_prob", "attn_dropout_prob", harmless=(0, 0.0)),
    *not_modelled("dropout after the embedding", "embd_pdrop", "emb_pdrop", "emb_dropout_prob", "embd_dropout",
                  "expert_dropout", "classifier_dropout", harmless=(0, 0.0)),
    *not_modelled("norms after the residual addition", "apply_residual_connection_post_layernorm", harmless=(False,)),
    *not_modelled("a part of the model that a class of transformers builds and that is not simulated",
                  "quantization", "adapters.**"),
)  # fmt: skip

register(
    Importer(
        name="hugging-face",
        title="Hugging Face config.json",
        about="The `config.json` beside the weights of a model: its class and its sizes.",
        leaves_open="Everything but the model: the machine, degrees, batches, precision.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A missing key is its class's default in transformers 4.57; `null` is not missing.",
            "Prediction layers that the class does not build (`num_nextn_predict_layers`) are reported and left out.",
            "Classes that are not known are refused with the nearest; their sizes can be written under `model:`.",
        ),
    )
)
