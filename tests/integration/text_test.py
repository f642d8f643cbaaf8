#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models on text and token files, through the program."""
import json
import math
import os
import struct
import unittest

import train_run

TINY = {"model.width": 32, "model.depth": 1, "model.heads": 2, "model.context": 32,
        "batch": 8, "slices": 4, "epochs": 1, "log.every_steps": 1}


def write_weights(path, tensors):
    """A safetensors file of float32: {name: (shape, bytes)}."""
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text
                     + b"".join(data for _, data in tensors.values()))


def floats(shape):
    return shape, struct.pack("<f", 0.5) * math.prod(shape)


class TextTest(train_run.TrainTest):
    def setUp(self):
        super().setUp()
        self.cache = self.scratch / "cache"
        before = os.environ.get("COHORT_CACHE")
        os.environ["COHORT_CACHE"] = str(self.cache)
        self.addCleanup(lambda: os.environ.pop("COHORT_CACHE") if before is None
                        else os.environ.update(COHORT_CACHE=before))
        self.folder = self.scratch / "text"
        self.folder.mkdir()

    def write_text(self):
        for name in "ab":
            (self.folder / f"{name}.txt").write_text(
                "".join(f"{name} line {i} of a text that says little.\n" for i in range(60)))

    def run_recipe(self, recipe, *args, ranks=1, **keys):
        keys = {key.replace("__", "."): value for key, value in keys.items()}
        return train_run.cohort(
            "train", recipe, "-n", ranks, "--json", *args,
            *train_run.assignments({**TINY, "data.dir": self.folder, **keys}))

    def refused(self, code, *words, recipe="gpt-tiny", ranks=2, layout="", **keys):
        run = self.run_recipe(recipe, *(["--layout", layout] if layout else []), ranks=ranks,
                              **keys)
        self.assertEqual((run.code, run.out), (code, ""), run.err)  # no rank has started
        self.assertEqual(run.err.count("\n"), 1, run.err)
        for word in words:
            self.assertIn(word, run.err)

    def test_every_model_learns_a_text_and_tells_of_tokens(self):
        self.write_text()
        for recipe in ("gpt-tiny", "llama-tiny", "bert-tiny"):
            with self.subTest(recipe):
                run = self.run_recipe(recipe, ranks=2, epochs=2, data__pack="true")
                self.assertEqual(run.code, 0, run.err)
                steps, valid = run.of("step"), run.of("valid")
                self.assertLess(steps[-1]["loss"], steps[0]["loss"])
                self.assertEqual(len(valid), 2)
                for event in valid:
                    self.assertAlmostEqual(event["perplexity"], math.exp(event["loss"]))
                    self.assertNotIn("accuracy", event)
                for event in (steps[-1], run.done):
                    self.assertAlmostEqual(
                        event["tokens_per_second"] / event["samples_per_second"], 32)
                self.assertGreater(run.done["flops_per_step"], 0)
                self.assertNotIn("mfu", run.done)  # processors have no peak that is known

    def test_operations_are_those_of_the_whole_model_in_every_layout(self):
        self.write_text()
        for recipe, keys in (("gpt-tiny", {}), ("llama-tiny", {"model__heads": 4}),
                             ("bert-tiny", {})):
            told = {}
            for ranks, layout in ((1, "dp=1"), (2, "tp=2"), (2, "pp=2")):
                run = self.run_recipe(recipe, "--max-steps", 1, "--layout", layout, ranks=ranks,
                                      **keys)
                self.assertEqual(run.code, 0, run.err)
                told[layout] = run.done["flops_per_step"]
            self.assertEqual(len(set(told.values())), 1, (recipe, told))

    def test_weights_do_not_depend_on_ranks(self):
        self.write_text()
        for recipe in ("gpt-tiny", "bert-tiny"):
            hashes = {self.run_recipe(recipe, "--exact", "--max-steps", 4, *more, ranks=ranks)
                      .done["weights_hash"]
                      for ranks, more in ((1, ()), (2, ()), (2, ("--layout", "shard=3")))}
            self.assertEqual(len(hashes), 1, recipe)

    def test_text_is_prepared_once(self):
        self.write_text()
        self.assertEqual(self.run_recipe("gpt-tiny", "--max-steps", 1).code, 0)
        made = {path: path.stat().st_mtime_ns for path in self.cache.rglob("*.bin")}
        self.assertEqual(len(made), 2)
        self.assertEqual(self.run_recipe("gpt-tiny", "--max-steps", 1, ranks=2).code, 0)
        self.assertEqual(
            {path: path.stat().st_mtime_ns for path in self.cache.rglob("*.bin")}, made)

    def test_a_tokenizer_is_saved_beside_checkpoints(self):
        self.write_text()
        keys = {"data__tokenizer": "bpe", "data__vocab": 300,
                "checkpoint__dir": self.scratch / "saved"}
        run = self.run_recipe("gpt-tiny", "--max-steps", 2, **keys)
        self.assertEqual(run.code, 0, run.err)
        (made,) = self.cache.rglob("tokenizer.model")
        saved = self.scratch / "saved" / "tokenizer.model"
        self.assertEqual(saved.read_bytes(), made.read_bytes())
        run = self.run_recipe("gpt-tiny", "--max-steps", 3, "--resume", **keys)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual([step["step"] for step in run.of("step")], [3])
        run = self.run_recipe("gpt-tiny", "--resume", **{**keys, "data__vocab": 301})
        self.assertEqual(run.code, 5, run.err)

    def test_a_model_continues_a_text_on_any_layout(self):
        self.write_text()
        texts = {}
        for ranks, layout in ((1, "dp=1"), (2, "dp=2,shard=3"), (2, "pp=2"), (2, "tp=2")):
            run = self.run_recipe("gpt-tiny", "--exact", "--layout", layout, "--sample", "a line",
                                  ranks=ranks, epochs=2, sample__tokens=16)
            self.assertEqual(run.code, 0, run.err)
            said = run.of("sample")
            self.assertEqual([event["step"] for event in said],
                             [run.done["steps"] // 2, run.done["steps"]])
            for event in said:
                self.assertEqual(event["prompt"], "a line")
                self.assertLessEqual(event["tokens"], 16)  # fewer where its document ends
            texts[layout] = [event["text"] for event in said]
        for layout, text in texts.items():
            self.assertEqual(text, texts["dp=1"], layout)

    def test_a_checkpoint_is_asked_for_a_text(self):
        self.write_text()
        for recipe, keys in (("gpt-tiny", {}), ("llama-tiny", {"data__pack": "true"}),
                             ("gpt-tiny", {"data__tokenizer": "bpe", "data__vocab": 300})):
            with self.subTest(recipe, **keys):
                saved = self.scratch / f"{recipe}{len(keys)}"
                run = self.run_recipe(recipe, "--sample", "b line", "--layout", "pp=2", ranks=2,
                                      epochs=2, checkpoint__dir=saved, sample__tokens=16, seed=9,
                                      **keys)
                self.assertEqual(run.code, 0, run.err)
                asked = train_run.cohort("sample", saved, "b line", "--tokens", 16, "--json")
                self.assertEqual(asked.code, 0, asked.err)
                told = json.loads(asked.out)
                self.assertEqual(told["text"], run.of("sample")[-1]["text"])
                self.assertEqual((told["recipe"], told["step"], told["seed"]),
                                 (recipe, run.done["steps"], 9))
                plain = train_run.cohort("sample", saved, "b line", "--tokens", 16,
                                         "--temperature", 0)
                self.assertEqual(plain.code, 0, plain.err)
                self.assertTrue(plain.out.startswith("b line"), plain.out)

    def test_what_continues_no_text_is_refused_before_any_rank_starts(self):
        self.write_text()
        for code, recipe, keys, words in (
                (2, "bert-tiny", {}, "bert-tiny fills in masked tokens"),
                (2, "mlp", {}, "mlp is no language model"),
                (2, "gpt-tiny", {"sample.temperature": -1}, "sample.temperature"),
                (2, "gpt-tiny", {"data.tokenizer": "none"}, "data.tokenizer=none")):
            run = train_run.cohort(
                "train", recipe, "-n", 2, "--json", "--sample", "a",
                *train_run.assignments({"data.dir": self.folder, **keys}))
            self.assertEqual((run.code, run.out), (code, ""), run.err)
            self.assertEqual(run.err.count("\n"), 1, run.err)
            self.assertIn(words, run.err)
        run = train_run.cohort("sample", self.folder, "a")
        self.assertEqual((run.code, run.out), (5, ""), run.err)
        self.assertIn("is no checkpoint", run.err)

    def test_made_up_token_files_are_read(self):
        made = train_run.cohort("data", "make", "tokens", self.folder, "--count", 2000,
                                "--vocab", 90)
        self.assertEqual(made.code, 0, made.err)
        run = self.run_recipe("gpt-tiny", data__tokenizer="none", data__vocab=90)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(run.done["steps"], 8)  # (2000 - 1) // 32 samples, 8 at once
        self.refused(3, "train.bin", "legal: 0 to 49", data__tokenizer="none", data__vocab=50)
        info = train_run.cohort("data", "info", self.folder / "val.bin")
        self.assertIn("200 tokens in the form of llm.c", info.out)

    def test_a_layout_that_cannot_be_had_is_refused_before_any_rank_starts(self):
        self.write_text()
        self.refused(2, "tp=3", "legal: dp x cp x tp x pp = 2, or a multiple of 3", layout="tp=3")
        self.refused(2, "dp=3", "legal: dp x cp x tp x pp = 2, here dp=2", layout="dp=3")
        self.refused(2, "the model has 3 blocks", "legal: pp=1 to 3", ranks=4, layout="pp=4")
        self.refused(2, "a sequence of 31", "legal: tp=1, 31", layout="tp=2", model__context=31,
                     model__sequence_parallel="true")
        self.refused(2, "heads", "legal", layout="tp=2", model__heads=1)
        for layout in ("", "dp=2"):
            self.refused(2, "pipeline.cut has 2 stages, and pp=1 needs 1; legal: auto",
                         "--layout pp=2", layout=layout, pipeline__cut="0,1-2")
            self.refused(2, "pipeline.speeds has 2 numbers, and pp=1", layout=layout,
                         pipeline__speeds="1,2")
            self.refused(2, "ends with block 1, and the model with block 2", layout=layout,
                         pipeline__cut="0-1")
        self.refused(2, "pipeline.cut has 3 stages, and pp=2 needs 2", layout="pp=2",
                     pipeline__cut="0,1,2")
        run = self.run_recipe("gpt-tiny", "--max-steps", 1, pipeline__cut="0-2",
                              pipeline__schedule="zero-bubble")
        self.assertEqual(run.code, 0, run.err)

    def test_weights_that_do_not_fit_are_refused_before_any_rank_starts(self):
        self.write_text()
        first = self.scratch / "first"
        run = self.run_recipe("gpt-tiny", "--max-steps", 1, "--save-final", first)
        self.assertEqual(run.code, 0, run.err)
        self.refused(5, "none: is not there", model__weights=self.scratch / "none")
        for layout in ("dp=2", "tp=2", "pp=2"):
            self.refused(5, "of another form: 'transformer.h.0.attn.c_attn.bias' is 96, "
                         "expected 48", layout=layout, model__weights=first,
                         model__width=16)
        self.refused(5, "missing in the file: 'transformer.h.1.attn.c_attn.bias'",
                     model__weights=first, model__depth=2)
        self.refused(5, "unknown to the model: 'transformer.h.0.attn.c_attn.bias'",
                     recipe="llama-tiny", model__weights=first)
        first.write_bytes(first.read_bytes()[:-5])
        self.refused(5, "first: ", model__weights=first)

    def test_weights_as_they_lie_on_the_hub_begin_a_run(self):
        self.write_text()
        for recipe, body, more, note in (
                ("gpt-tiny", "transformer.", {"h.0.attn.bias": floats([1, 1, 32, 32])}, ""),
                ("bert-tiny", "bert.", {"pooler.dense.bias": floats([32])},
                 "passed over, for the model does without: 'pooler.dense.bias'")):
            first, hub, again = (self.scratch / f"{recipe}-{n}" for n in range(3))
            run = self.run_recipe(recipe, "--max-steps", 1, "--save-final", first)
            self.assertEqual(run.code, 0, run.err)
            data = first.read_bytes()
            end = 8 + struct.unpack("<Q", data[:8])[0]
            tensors = {}
            for name, entry in json.loads(data[8:end]).items():
                if name != "__metadata__":
                    begin, stop = entry["data_offsets"]
                    tensors[name.removeprefix(body)] = (entry["shape"],
                                                        data[end + begin:end + stop])
            self.assertNotIn(f"{body}h.0.attn.c_attn.bias", tensors)
            write_weights(hub, {**tensors, **more})
            run = self.run_recipe(recipe, "--max-steps", 1, "--save-initial", again,
                                  "--layout", "tp=2", ranks=2, model__weights=hub, seed=3)
            self.assertEqual(run.code, 0, run.err)
            self.assertEqual(train_run.read_weights(again), train_run.read_weights(first))
            notes = [line for line in run.err.splitlines() if "checkpoint.weights" in line]
            self.assertEqual(len(notes), 1 if note else 0, run.err)
            self.assertIn(note, run.err)
            folder, saved = self.scratch / f"{recipe}-hub", self.scratch / f"{recipe}-saved"
            for args in (("export", hub, folder, "--to", "hf", "--max-shard", "20K"),
                         ("import", folder, saved)):
                run = train_run.cohort("checkpoint", *args)
                self.assertEqual(run.code, 0, run.err)
            self.assertGreater(len(list(folder.glob("*.safetensors"))), 1)
            for begin in (folder, saved):
                run = self.run_recipe(recipe, "--max-steps", 1, "--save-initial", again,
                                      "--quiet", model__weights=begin, seed=3)
                self.assertEqual((run.code, run.err), (0, ""))
                self.assertEqual(train_run.read_weights(again), train_run.read_weights(first))

    def test_bad_input_is_refused_before_any_rank_starts(self):
        self.refused(3, "no text there")
        self.refused(3, "expected train.bin and val.bin", data__tokenizer="none")
        self.write_text()
        self.refused(2, "data.vocab=100", "legal: 0", data__vocab=100)
        self.refused(3, "data.vocab=60000", "Vocabulary size too high",
                     data__tokenizer="bpe", data__vocab=60000)
        self.refused(3, "a sample needs 9001 (model.context)", model__context=9000)
        self.refused(2, "model.size", "nearest: 124M", recipe="gpt", model__size="125M")


if __name__ == "__main__":
    unittest.main()
