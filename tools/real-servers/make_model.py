"""Makes a small llama-shaped model that real servers load; it speaks no sense.

What it is: seeded random weights and a byte-level BPE tokenizer trained on the word list below, written as a
GGUF file (llama-server) and, with --folder, as a Hugging Face folder (mlx_lm.server).
What it does not know: which server reads it, and any text but its own.
Contract: the same arguments and package versions give the same bytes. A listed word with a space before it
is one token. Under greedy decoding every answer token is such a word, so an answer never ends by
itself: max_tokens stops it.
"""

import argparse
import json
import pathlib

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WORDS = (
    "amber anchor autumn bamboo barley basket beacon birch bridge bucket candle canyon cedar circle clover "
    "cobalt copper coral cotton cradle desert dragon ember engine falcon feather fiddle forest fossil galaxy "
    "ginger glacier granite hammer harbor hazel helmet honey island ivory jacket jasmine jungle kettle ladder "
    "lantern lemon linen lizard magnet maple marble meadow mirror mosaic needle nickel oasis olive orchard "
    "otter oyster pebble pepper pillow planet pocket poplar quartz rabbit raven ribbon river rocket saddle "
    "salmon shadow silver spiral summit sunset tablet temple thunder timber tunnel turtle valley velvet violet "
    "walnut willow window winter zenith zephyr"
).split()
BEGIN, END = "<|begin|>", "<|end|>"
SPACE = "\u0120"  # how byte-level BPE writes a space
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def train_tokenizer():
    """A tokenizer in which each of WORDS, with its space, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" " + word for word in WORDS + ["user", "assistant", "system"]], trainer)
    return tokenizer


def make_weights(args, vocabulary):
    """Tensors by their Hugging Face names, all float32."""
    rng = np.random.default_rng(args.seed)
    head = args.dim // args.heads

    def normal(rows, columns):
        return rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)

    # A token whose output row is zero has the logit 0; with hundreds of random logits beside it the
    # greatest is above 0, so greedy decoding only ever takes whole words.
    output = 4 * normal(len(vocabulary), args.dim)
    for index, piece in enumerate(vocabulary):
        if piece.removeprefix(SPACE) not in WORDS or not piece.startswith(SPACE):
            output[index] = 0
    tensors = {
        "model.embed_tokens.weight": normal(len(vocabulary), args.dim) * np.float32(args.dim**0.5),
        "model.norm.weight": np.ones(args.dim, np.float32),
        "lm_head.weight": output,
    }
    for layer in range(args.layers):
        shapes = {
            "self_attn.q_proj": (args.dim, args.dim),
            "self_attn.k_proj": (args.kv_heads * head, args.dim),
            "self_attn.v_proj": (args.kv_heads * head, args.dim),
            "self_attn.o_proj": (args.dim, args.dim),
            "mlp.gate_proj": (2 * args.dim, args.dim),
            "mlp.up_proj": (2 * args.dim, args.dim),
            "mlp.down_proj": (args.dim, 2 * args.dim),
        }
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = normal(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(args.dim, np.float32)
    return tensors


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name):
    """The GGUF name of a tensor."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[rest]}.weight"
    return f"{GGUF_NAMES[stem]}.weight"


def interleave_rope(weight, heads):
    """Rows from the half-split rotary order of Hugging Face to the pairwise one that GGUF's llama has."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path, args, tokenizer, vocabulary, tensors):
    """The GGUF file, for llama.cpp."""
    import gguf

    bpe = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("everwarm test model")
    writer.add_context_length(args.context)
    writer.add_embedding_length(args.dim)
    writer.add_block_count(args.layers)
    writer.add_feed_forward_length(2 * args.dim)
    writer.add_head_count(args.heads)
    writer.add_head_count_kv(args.kv_heads)
    writer.add_rope_dimension_count(args.dim // args.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    kinds = [gguf.TokenType.CONTROL if p in (BEGIN, END) else gguf.TokenType.NORMAL for p in vocabulary]
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocabulary.index(BEGIN))
    writer.add_eos_token_id(vocabulary.index(END))
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            tensor = interleave_rope(tensor, args.heads)
        elif name.endswith("k_proj.weight"):
            tensor = interleave_rope(tensor, args.kv_heads)
        writer.add_tensor(gguf_name(name), tensor.astype(np.float16) if tensor.ndim == 2 else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(folder, args, tokenizer, vocabulary, tensors):
    """The Hugging Face folder, for mlx-lm."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    halves = {name: tensor.astype(np.float16) for name, tensor in tensors.items()}
    save_file(halves, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": args.dim,
        "intermediate_size": 2 * args.dim,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "num_key_value_heads": args.kv_heads,
        "head_dim": args.dim // args.heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": args.context,
        "vocab_size": len(vocabulary),
        "tie_word_embeddings": False,
        "bos_token_id": vocabulary.index(BEGIN),
        "eos_token_id": vocabulary.index(END),
        "torch_dtype": "float16",
    }
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=pathlib.Path, help="write this GGUF file")
    parser.add_argument("--folder", type=pathlib.Path, help="write this Hugging Face folder")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=64, help="width; a multiple of twice the heads")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--context", type=int, default=8192, help="tokens")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.dim % (2 * args.heads) or args.heads % args.kv_heads:
        parser.error(f"--dim {args.dim} --heads {args.heads} --kv-heads {args.kv_heads} do not divide evenly")
    tokenizer = train_tokenizer()
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    tensors = make_weights(args, vocabulary)
    if args.gguf:
        write_gguf(args.gguf, args, tokenizer, vocabulary, tensors)
    if args.folder:
        write_folder(args.folder, args, tokenizer, vocabulary, tensors)


if __name__ == "__main__":
    main()
