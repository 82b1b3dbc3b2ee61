"""
Hugging Face ``config.json``: the model, as its class in transformers builds it.
"""

from __future__ import annotations

from pathlib import Path

from trainsim.errors import ScenarioError, TrainsimError
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.models.hugging_face import FURTHER_TYPES, NAMES, as_mapping, classes

OTHERS = ("n_embed", "ffn_embed_dim", "max_seq_len")
"""Keys of configurations of other tools that describe models."""


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
    sizes = {key: document.data[key] for key in looked_at if not isinstance(document.data[key], dict | list)}
    for key in sorted(looked_at, key=list(document.data).index):
        reader.use(key, f"model: {mapping['family']} ({key} = {sizes[key]})" if key in sizes else "model")
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
    *no_effect("values of weights, not their number", "initializer_range", "*_std", "init_*", "initializer_factor"),
    *no_effect("tokens that have a meaning", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
               "unk_token_id", "decoder_start_token_id", "forced_*", "image_token_id"),
    *no_effect("generating text, not training it", "use_cache", "do_sample", "temperature", "top_p", "max_length",
               "num_return_sequences", "task_specific_params.**", "generation_config.**"),
    *no_effect("angles of rotary positions, not their cost", "rope_theta", "rope_scaling.**", "rope_parameters.**",
               "rope_local_base_freq", "original_max_position_embeddings", "rotary_emb_base", "rope_interleave"),
    *no_effect("numbers that scale or clip, without a cost", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
               "norm_eps", "attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
               "query_pre_attn_scalar", "scale_attn*", "routed_scaling_factor", "norm_topk_prob", "scoring_func"),
    *no_effect("losses of a router, a few operations per token", "router_aux_loss_coef", "output_router_logits",
               "aux_loss_alpha", "seq_aux", "router_jitter_noise", "input_jitter_noise"),
    *no_effect("what a call returns or how it is told", "return_dict", "output_*", "id2label.**", "label2id.**",
               "problem_type", "finetuning_task", "gradient_checkpointing", "summary_*", "tokenizer_class",
               "attn_implementation", "_attn_implementation", "pretraining_tp", "use_return_dict", "torchscript"),
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
            "Prediction layers that the class does not build (`num_nextn_predict_layers`) are told and left out.",
            "Classes that are not known are refused with the nearest; their sizes can be written under `model:`.",
        ),
    )
)
