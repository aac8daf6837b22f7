"""Makes folders of models with Transformers, tokenizers and all, and tells their logits; runs beside a test.

A line of standard input is an order, in JSON, and is answered by one: `{"make": name, "folder": path, "text": path}`,
or `{"open": path}`. Needs `pip install 'meshtf[test-transformers]'`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import draw_configurations
import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

MODELS = Path(__file__).parent / "models"
PROMPTS, NEW_TOKENS = ("The data are", "a", "Rows of text"), 6
SIZE = 400
"""Of a vocabulary, without T5's sentinels."""


def byte_bpe(folder: Path, text: Path, *special: str, **names: str) -> int:
    """As GPT-2's: `tokenizer.json`, and what its class says beside it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(text)], trainer)
    return _saved(tokenizer, folder, names)


def word_pieces(folder: Path, text: Path) -> int:
    """As BERT's."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special, show_progress=False)
    tokenizer.train([str(text)], trainer)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return _saved(tokenizer, folder, names)


def unigram(folder: Path, text: Path) -> int:
    """As T5's `tokenizer.json`: a hundred sentinels behind the pieces."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train([str(text)], trainer)
    tokenizer.add_special_tokens([f"<extra_id_{k}>" for k in reversed(range(100))])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return _saved(tokenizer, folder, dict(zip(("pad_token", "eos_token", "unk_token"), special, strict=True)))


def pieces(folder: Path, text: Path, name: str, **options: Any) -> int:
    """A SentencePiece model."""
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "own"), vocab_size=SIZE, minloglevel=2, **options
    )
    (folder / "own.vocab").unlink()
    (folder / "own.model").rename(folder / name)
    return SIZE


def begun_by(tokenizer: Any, name: str) -> None:
    """As Llama 3's: the tokenizer puts a token before every text."""
    special = [(name, tokenizer.token_to_id(name))]
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(), processors.TemplateProcessing(single=f"{name} $A", special_tokens=special)]
    )


def _saved(tokenizer: Any, folder: Path, names: dict[str, str]) -> int:
    if "begin_of_text" in names.get("bos_token", ""):
        begun_by(tokenizer, names["bos_token"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return tokenizer.get_vocab_size(with_added_tokens=True)


DECODERS = ("deepseek_v2", "deepseek_v3", "gpt_oss", "mixtral", "olmo2", "qwen3", "qwen3_moe")
"""Which are not stored; their configurations are those that others are drawn from."""
GPT, LLAMA_3 = "<|endoftext|>", {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
BLOOM = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def of_gpt(folder: Path, text: Path) -> int:
    return byte_bpe(folder, text, GPT, bos_token=GPT, eos_token=GPT)


def of_llama(folder: Path, text: Path) -> int:
    return pieces(folder, text, "tokenizer.model", model_type="bpe", byte_fallback=True)


def of_gemma(folder: Path, text: Path) -> int:
    """Whose text begins without a space, and whose class adds the begin token that is asked for."""
    ids = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": true, "tokenizer_class": "GemmaTokenizer"}')
    own = {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False}
    own |= {"bos_piece": "<bos>", "eos_piece": "<eos>"}
    return pieces(folder, text, "tokenizer.model", **own, **ids)


def of_t5(folder: Path, text: Path) -> int:
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    return pieces(folder, text, "spiece.model", model_type="unigram", hard_vocab_limit=False, **ids) + 100


TOKENIZERS: dict[str, Callable[[Path, Path], int]] = {
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "gpt_neox", "qwen2"), of_gpt),
    "bloom": lambda folder, text: byte_bpe(folder, text, *BLOOM.values(), **BLOOM),
    "llama_3_1": lambda folder, text: byte_bpe(folder, text, *LLAMA_3.values(), **LLAMA_3),
    **dict.fromkeys(("llama", "mistral"), of_llama),
    **dict.fromkeys(("gemma", "gemma2"), of_gemma),
    "t5": of_t5,
    **dict.fromkeys(("t5_1_1", "switch_transformers"), unigram),
    **dict.fromkeys(("bert", "bert_classifier", "modernbert"), word_pieces),
    **dict.fromkeys(DECODERS, of_gpt),
}
BEGIN_AND_END: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "gpt_neox", "qwen2", *DECODERS), (0, 0)),
    "bloom": (1, 2),
    "llama_3_1": (0, 1),
    **dict.fromkeys(("llama", "mistral"), (1, 2)),
    **dict.fromkeys(("gemma", "gemma2"), (2, 1)),
}


def make(name: str, folder: Path, text: Path) -> dict[str, Any]:
    """A model with the stored one's configuration, but for the vocabulary; its parameters are drawn."""
    folder.mkdir(parents=True)
    size = TOKENIZERS[name](folder, text)
    (folder / "config.json").write_text(json.dumps(draw_configurations.stored(name)))
    configuration = transformers.AutoConfig.from_pretrained(folder)
    configuration.vocab_size = -(-size // 64) * 64  # a little more than there are tokens, as is usual
    if name in BEGIN_AND_END:
        configuration.bos_token_id, configuration.eos_token_id = BEGIN_AND_END[name]
    torch.manual_seed(0)
    model = getattr(transformers, configuration.architectures[0])(configuration).float()
    if name == "gemma2":  # the stored model's cap makes most logits alike
        model.config.final_logit_softcapping = 30.0
    if name == "t5_1_1":  # as in what is published; the library would tie it to the embedding
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return {**_logits(model), "continued": [] if "bert" in name else _continued(model, folder)}


def _continued(model: Any, folder: Path) -> list[list[int]]:
    """The greedy tokens behind each of the prompts, with the folder's own tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        continued = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False)[0].tolist()
        found.append(continued[1 if model.config.is_encoder_decoder else ids.shape[1] :])
    return found


def open_folder(folder: Path) -> dict[str, Any]:
    """The logits of a folder, which is opened as a user does."""
    configuration = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, configuration.architectures[0])
    model, loading = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    return {**_logits(model), "loading": {key: sorted(map(str, found)) for key, found in loading.items() if found}}


def _logits(model: Any) -> dict[str, Any]:
    ids = torch.arange(30, 42).reshape(2, 6)
    fed = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        fed["decoder_input_ids"] = torch.cat([torch.zeros([2, 1], dtype=ids.dtype), ids[:, :4]], 1)
    elif "bert" not in model.config.model_type:
        ids[:, 0] = model.config.bos_token_id
    with torch.no_grad():
        logits = model.eval()(**fed).logits
    return {"logits": logits.tolist(), **{key: value.tolist() for key, value in fed.items()}}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line))
        except Exception:  # the test tells of it, and goes on with other models
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def _answer(order: dict[str, str]) -> dict[str, Any]:
    if "open" in order:
        return open_folder(Path(order["open"]))
    return make(order["make"], Path(order["folder"]), Path(order["text"]))


if __name__ == "__main__":
    main()
