#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of language_weights_test.cpp, by Hugging Face transformers.

Usage: make.py [DIR]   (made with torch 2.8 and transformers 5.23)

Without those packages it makes a virtual environment for itself and installs them. A model is
saved as save_pretrained does (NAME.safetensors); beside it is what comes of it in float64
(NAME_golden.safetensors): logits, the mean loss, and the gradient of every parameter.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError:
    if "COHORT_GOLDEN_ENVIRONMENT" in os.environ:
        raise
    folder = Path(tempfile.mkdtemp())
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "-q", "torch", "transformers"], check=True)
    os.environ["COHORT_GOLDEN_ENVIRONMENT"] = str(folder)
    os.execv(folder / "bin/python", [str(folder / "bin/python"), *sys.argv])

VOCAB, CONTEXT, SAMPLES = 19, 8, 3


def models():
    yield "gpt2", transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB, n_positions=CONTEXT, n_embd=12, n_layer=2, n_head=3,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    )
    yield "llama", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=16,
            intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
        )
    )
    yield "bert", transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=12,
            intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
            hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            pad_token_id=None,  # with one its row has no gradient of the embedding
        )
    )


def shake(model):
    """No parameter is all 0 or 1, so that each one's place is seen."""
    for name, parameter in sorted(model.named_parameters()):
        is_norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data = torch.randn_like(parameter) * 0.3 + (1 if is_norm else 0)


def fields(name):
    tokens = torch.randint(0, VOCAB, (SAMPLES, CONTEXT))
    target = torch.randint(0, VOCAB, (SAMPLES, CONTEXT))
    target[torch.rand(SAMPLES, CONTEXT) < (0.7 if name == "bert" else 0.2)] = -100
    return tokens, target


def write(name, model, folder):
    shake(model)
    with tempfile.TemporaryDirectory() as there:
        model.save_pretrained(there)
        (folder / f"{name}.safetensors").write_bytes(Path(there, "model.safetensors").read_bytes())
    model.double().train()
    tokens, target = fields(name)
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    golden = {"tokens": tokens, "target": target, "logits": logits.detach(), "loss": loss.detach()}
    for parameter, tensor in model.named_parameters():
        golden[f"grad.{parameter}"] = tensor.grad
    narrow = {k: v.float() if v.is_floating_point() else v for k, v in golden.items()}
    save_file({k: v.contiguous() for k, v in narrow.items()}, folder / f"{name}_golden.safetensors")


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    torch.manual_seed(17)
    for name, model in models():
        write(name, model, folder)


if __name__ == "__main__":
    main()
