#!/usr/bin/env python3
"""Writes templates.golden.json: what Hugging Face's transformers makes of
conversations with the chat templates of model families. The Go tests must agree
on every character, every id and every mask.

  vectors  small conversations of our own, with text, ids and spans in full, and
           a small tokenizer of the repository
  digests  1,000 conversations of the shared data sets with the models' own
           tokenizers: digests of text, ids and spans, a hundred at a time

Masks come from differences of rendered prefixes: a completion begins where the
ids of the whole part from those of the prompt (add_generation_prompt), and ends
where they part from those of the rendering up to its end token. For the template
with {% generation %} they are return_assistant_tokens_mask's.

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python make_templates.py [SHARED]
SHARED is the folder of the shared data sets, default ../../../shared/data. The
output is reproducible byte for byte.
"""
import base64
import gzip
import hashlib
import json
import os
import struct
import sys

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
SHARED = sys.argv[1] if len(sys.argv) > 1 else os.path.join(REPO, "..", "shared", "data")

# Where a template is not in the shared data sets it is written here as its model
# publishes it.
LLAMA2 = "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"  # meta-llama/Llama-2-7b-chat-hf
LLAMA3 = "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"  # meta-llama/Meta-Llama-3-8B-Instruct
MISTRAL1 = "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"  # mistralai/Mistral-7B-Instruct-v0.1, its first version
MISTRAL3 = "{%- if messages[0][\"role\"] == \"system\" %}\n    {%- set system_message = messages[0][\"content\"] %}\n    {%- set loop_messages = messages[1:] %}\n{%- else %}\n    {%- set loop_messages = messages %}\n{%- endif %}\n\n{{- bos_token }}\n{%- for message in loop_messages %}\n    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}\n    {%- endif %}\n    {%- if message[\"role\"] == \"user\" %}\n        {%- if loop.last and system_message is defined %}\n            {{- \"[INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}\n        {%- else %}\n            {{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}\n        {%- endif %}\n    {%- elif message[\"role\"] == \"assistant\" %}\n        {{- \" \" + message[\"content\"]|trim + eos_token}}\n    {%- else %}\n        {{- raise_exception(\"Only user and assistant roles are supported, with the exception of an initial optional system message!\") }}\n    {%- endif %}\n{%- endfor %}\n"  # mistralai/Mistral-7B-Instruct-v0.3 without its tools
# lm-sys/FastChat, conversation "vicuna_v1.1" (there in Python): ADD_COLON_TWO with sep " " and sep2 "</s>".
VICUNA = "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{{ messages[0]['content'] }}{% else %}{% set loop_messages = messages %}{{ \"A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions.\" }}{% endif %}{{ ' ' }}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'] + ' ' }}{% if loop.last %}{{ 'ASSISTANT:' }}{% endif %}{% else %}{{ 'ASSISTANT: ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
# ChatML with {% generation %} blocks, in the manner of HuggingFaceTB/SmolLM3-3B.
MARKED = "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


def shared(path):
    full = os.path.join(SHARED, path)
    return gzip.open(full, "rt", encoding="utf-8") if path.endswith(".gz") else open(full, encoding="utf-8")


def load(path):
    with shared(path) as f:
        return json.load(f)


def with_tokens(t, contents):
    """Adds special tokens behind the vocabulary."""
    top = max(list(t["model"]["vocab"].values()) + [a["id"] for a in t["added_tokens"]])
    for i, c in enumerate(contents):
        t["added_tokens"].append({"id": top + 1 + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    return t


def llama2():
    # Phi-3 has Llama-2's vocabulary; the shared file of Llama-2 itself holds merges that the library refuses.
    t = load("tokenizers/phi3/tokenizer.json.gz")
    t["added_tokens"] = [dict(a, rstrip=False, special=True) for a in t["added_tokens"] if a["id"] < 3]
    return t


def byte_level(regex, nfc, ignore_merges, vocab, merges):
    bl = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, bl]},
        "post_processor": None, "decoder": bl,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore_merges, "vocab": vocab, "merges": merges},
    }


LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def llama3():
    with shared("tokenizers/llama3/vocab.bpe.gz") as f:
        merges = [line.rstrip("\n") for line in f]
    t = byte_level(LLAMA3_SPLIT, False, True, load("tokenizers/llama3/encoder.json.gz"), merges)
    return with_tokens(t, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])


def qwen():
    alphabet = [b for b in range(33, 127)] + [b for b in range(161, 173)] + [b for b in range(174, 256)]
    chars = {b: chr(b) for b in alphabet}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + len(chars) - len(alphabet))
    name = lambda raw: "".join(chars[b] for b in raw)
    ranks = {}
    with shared("tokenizers/qwen/qwen.tiktoken.gz") as f:
        for line in f:
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token)] = int(rank)
    merges = []
    for token, rank in ranks.items():
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            found = [(ranks[parts[i] + parts[i + 1]], i) for i in range(len(parts) - 1) if ranks.get(parts[i] + parts[i + 1], rank) < rank]
            if not found:
                break
            _, i = min(found)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append(name(parts[0]) + " " + name(parts[1]))
    t = byte_level(LLAMA3_SPLIT.replace("{1,3}", ""), True, False, {name(k): v for k, v in ranks.items()}, merges)
    return with_tokens(t, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def demo(*contents):
    with open(os.path.join(REPO, "cmd/specstream/demobase/tokenizer.json"), encoding="utf-8") as f:
        return with_tokens(json.load(f), contents)


# family: template, tokenizer of the digests, control tokens the small one gets, bos, eos, end token
def families():
    phi3 = load("tokenizers/phi3/tokenizer_config.json")["chat_template"]
    qwen25 = load("tokenizers/qwen/qwen2.5_tokenizer_config.json")["chat_template"]
    return {
        "vicuna": (VICUNA, llama2, ["<s>", "</s>"], "<s>", "</s>", "</s>"),
        "llama2": (LLAMA2, llama2, ["<s>", "</s>"], "<s>", "</s>", "</s>"),
        "llama3": (LLAMA3, llama3, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
        "mistral": (MISTRAL1, llama2, ["<s>", "</s>"], "<s>", "</s>", "</s>"),
        "mistral3": (MISTRAL3, lambda: with_tokens(llama2(), ["[INST]", "[/INST]"]), ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", "</s>"),
        "phi3": (phi3, lambda: load("tokenizers/phi3/tokenizer.json.gz"), ["<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>"], "<s>", "<|endoftext|>", "<|end|>"),
        "chatml": (qwen25, qwen, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", "<|im_end|>"),
        "marked": (MARKED, qwen, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", "<|im_end|>"),
    }


def wrap(definition, template, bos, eos):
    path = os.path.join("/tmp", "tokenizer.%d.json" % os.getpid())
    with open(path, "w", encoding="utf-8") as f:
        json.dump(definition, f, ensure_ascii=False)
    try:
        tok = PreTrainedTokenizerFast(tokenizer_file=path, bos_token=bos, eos_token=eos, clean_up_tokenization_spaces=False)
    finally:
        os.remove(path)
    tok.chat_template = template
    return tok


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Refused(Exception):
    pass


def encode(tok, family, end, turns, upto=None):
    """text, ids and spans of the turns; with upto, of that many of them."""
    messages = [{"role": r, "content": c} for r, c in turns[:upto]]
    if family == "mistral3" and messages[0]["role"] == "system":
        raise Refused()  # the template drops it: no prompt with one begins the text
    try:
        text = tok.apply_chat_template(messages, tokenize=False)
    except Exception as e:
        raise Refused() from e
    ids = tok.apply_chat_template(messages, tokenize=True)
    assert ids == tok(text, add_special_tokens=False)["input_ids"]
    spans = []
    if family == "marked":
        out = tok.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        assert out["input_ids"] == ids
        for i, m in enumerate(out["assistant_masks"]):
            if m and spans and spans[-1][1] == i:
                spans[-1][1] += 1
            elif m:
                spans.append([i, i + 1])
        return text, ids, spans
    for k, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        prompt = tok.apply_chat_template(messages[:k], tokenize=False, add_generation_prompt=True)
        assert text.startswith(prompt)
        start = common(tok(prompt, add_special_tokens=False)["input_ids"], ids)
        upto = tok.apply_chat_template(messages[: k + 1], tokenize=False)
        if family == "phi3":
            upto = upto.removesuffix("<|endoftext|>")
        upto = upto.rstrip()
        assert text.startswith(upto) and upto.endswith(end), (upto[-50:], end)
        stop = common(tok(upto, add_special_tokens=False)["input_ids"], ids)
        spans.append([start, stop])
    return text, ids, spans


VECTORS = [
    [("user", "Who are you?"), ("assistant", "A model.")],
    [("system", "Be brief."), ("user", "One plus one?"), ("assistant", "Two."), ("user", "And two more?"), ("assistant", "Four, I think.")],
    [("user", " What's the name of the river that\nflows through Vienna? "), ("assistant", "  The Danube.\n\n"), ("user", "Grüße! 你好 😀"), ("assistant", "\nHello \u00a0")],
    [("system", " S \n"), ("user", "a"), ("assistant", "b")],
    [("user", "Is </s> or <|im_end|> or <|end|> or <|eot_id|> or [/INST] a word?"), ("assistant", "</s>No.<|im_end|> <|end|>")],
    [("user", "x"), ("assistant", "\n\n\n  spaced"), ("user", "y\n"), ("assistant", ":)")],
]

CHUNK = 100
EXPANDED = 4  # assistant turns of a conversation that are encoded one by one as well


def conversations():
    out = []
    for path in ("sharegpt/mix_dev.json", "sharegpt/mix_train.json.gz"):
        for record in load(path):
            turns = [(t["from"], t["value"]) for t in record["conversations"]]
            body = turns[1:] if turns and turns[0][0] == "system" else turns
            if not body or len(body) % 2 or any(t[0] != ("human", "gpt")[i % 2] or not t[1].strip() for i, t in enumerate(body)):
                continue
            roles = {"system": "system", "human": "user", "gpt": "assistant"}
            out.append([(roles[r], v) for r, v in turns])
            if len(out) == 1000:
                return out
    raise SystemExit("fewer than 1,000 conversations")


def main():
    data = conversations()
    result = {"templates": {}, "vectors": [], "digests": {}, "refused": {}}
    for family, (template, tokenizer, small, bos, eos, end) in families().items():
        result["templates"][family] = {"source": template, "bos": bos, "eos": eos, "end": end, "tokens": small}
        tok = wrap(demo(*[s for s in small if s != "<|end|>"]), template, bos, eos)
        for i, turns in enumerate(VECTORS):
            try:
                text, ids, spans = encode(tok, family, end, turns)
                result["vectors"].append({"family": family, "conversation": i, "text": text, "ids": ids, "spans": spans})
            except Refused:
                result["vectors"].append({"family": family, "conversation": i, "refused": True})
        tok = wrap(tokenizer(), template, bos, eos)
        chunks, refused = [], 0
        for at in range(0, len(data), CHUNK):
            texts, tokens, masks = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
            for turns in data[at : at + CHUNK]:
                ends = [k + 1 for k, t in enumerate(turns) if t[0] == "assistant"]
                for i, upto in enumerate([len(turns)] + ends[:EXPANDED]):
                    try:
                        text, ids, spans = encode(tok, family, end, turns, upto)
                    except Refused:
                        refused += i == 0
                        text, ids, spans = "refused", [], []
                    texts.update(text.encode() + b"\0")
                    tokens.update(struct.pack("<%di" % (len(ids) + 1), *ids, -1))
                    flat = [x for s in spans for x in s]
                    masks.update(struct.pack("<%di" % (len(flat) + 1), *flat, -1))
            chunks.append([h.hexdigest()[:32] for h in (texts, tokens, masks)])
            print(family, at, flush=True)
        result["digests"][family], result["refused"][family] = chunks, refused
    result["conversations"] = [[list(t) for t in v] for v in VECTORS]
    with open(os.path.join(HERE, "templates.golden.json"), "w", encoding="utf-8") as f:
        # Templates that are in the shared data sets stay there.
        for family in ("phi3", "chatml"):
            del result["templates"][family]["source"]
        json.dump(result, f, ensure_ascii=False, indent=1)
        f.write("\n")


main()
