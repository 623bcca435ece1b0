#!/usr/bin/env python3
"""Holds transcripts of Moonshine and of CTC models of features against the pipeline of the transformers library.

    check_transcribe_windows.py PLANISH [--seeds 10]

For each seed it makes a Moonshine and a Wav2Vec2-BERT of a random configuration with random weights, and a recording of noise, tones and
silence of several windows. The pipeline for automatic-speech-recognition runs it with `chunk_length_s`, and so does `planish transcribe`: the
texts have to be the same, with one window at a time and with three. Those of Moonshine are joined by the pipeline's own function.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from transformers.pipelines.automatic_speech_recognition import _find_longest_common_sequence, chunk_iter

from check_encoders import fill
from check_transcribe import record

WORDS = 40


def words_tokenizer(folder: Path, special: dict[str, int]) -> transformers.PreTrainedTokenizerFast:
    words = special | {f"w{n}": n for n in range(len(special), WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w9"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", clean_up_tokenization_spaces=False
    )
    own.save_pretrained(folder)
    return own


def moonshine(folder: Path, d: random.Random):
    heads = d.choice([1, 2, 3])
    config = transformers.MoonshineConfig(
        vocab_size=WORDS, hidden_size=heads * 20, intermediate_size=24, encoder_num_hidden_layers=2, decoder_num_hidden_layers=d.choice([1, 2]),
        encoder_num_attention_heads=heads, decoder_num_attention_heads=heads, max_position_embeddings=64, pad_token_id=2, bos_token_id=0,
        eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.MoonshineForConditionalGeneration(config).eval()
    fill(model, torch.Generator().manual_seed(d.randrange(1 << 30)))
    model.generation_config.max_length = d.choice([8, 20])
    model.save_pretrained(folder)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True)
    extractor.save_pretrained(folder)
    tokenizer = words_tokenizer(folder, {"<s>": 0, "</s>": 1, "<pad>": 2})
    return model, extractor, tokenizer


def wav2vec2_bert(folder: Path, d: random.Random):
    config = transformers.Wav2Vec2BertConfig(
        vocab_size=12, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32, feature_projection_input_dim=160,
        conv_depthwise_kernel_size=5, position_embeddings_type=d.choice(["relative_key", "relative", "rotary"]),
    )  # fmt: skip
    model = transformers.Wav2Vec2BertForCTC(config).eval()
    fill(model, torch.Generator().manual_seed(d.randrange(1 << 30)))
    model.save_pretrained(folder)
    extractor = transformers.SeamlessM4TFeatureExtractor()
    extractor.save_pretrained(folder)
    letters = {"<pad>": 0, "|": 1, "<unk>": 2} | {letter: 3 + n for n, letter in enumerate("abcdefghi")}
    (folder / "vocab.json").write_text(json.dumps(letters))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"), bos_token=None, eos_token=None)
    tokenizer.save_pretrained(folder)
    return model, extractor, tokenizer


def joined(model, extractor, tokenizer, samples: np.ndarray, length: float) -> str:
    """The texts of windows, joined as the pipeline joins them where it knows that they overlap, which transformers 5.24 forgets."""
    count = lambda seconds: round(seconds * extractor.sampling_rate)
    texts = []
    for window in chunk_iter(samples, extractor, count(length), count(length / 6), count(length / 6)):
        given = {name: window[name] for name in ("input_values", "attention_mask")}
        texts.append(model.generate(**given).numpy())
    return tokenizer.decode(_find_longest_common_sequence(texts, tokenizer), skip_special_tokens=True)


def planish(binary: Path, artifact: Path, sound: Path, settings: dict, batch: int) -> str:
    command = [binary, "transcribe", artifact, sound, "--batch", str(batch), "--format", "json"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"transcribe exited {done.returncode}: {done.stderr}")
    return " ".join(json.loads(line)["text"] for line in done.stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = compared = 0
    for seed in range(args.seeds):
        for make in (moonshine, wav2vec2_bert):
            d = random.Random(f"{seed} {make.__name__}")
            torch.manual_seed(seed)
            with tempfile.TemporaryDirectory() as scratch:
                folder, sound, artifact = Path(scratch) / "model", Path(scratch) / "sound.wav", Path(scratch) / "out"
                folder.mkdir()
                model, extractor, tokenizer = make(folder, d)
                record(sound, d, 2)
                length = d.choice([1.2, 3.0])
                pipe = transformers.AutomaticSpeechRecognitionPipeline(model, feature_extractor=extractor, tokenizer=tokenizer)
                samples = np.frombuffer(sound.read_bytes()[44:], "<i2").astype(np.float32) / 32768
                if make is moonshine:
                    try:
                        wanted = joined(model, extractor, tokenizer, samples, length)
                    except ValueError:
                        # The function does not take a text that is shorter than the one after it.
                        continue
                else:
                    wanted = pipe(samples, chunk_length_s=length, ignore_warning=True)["text"]
                done = subprocess.run([args.planish, "compile", folder, "-o", artifact], capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"compile exited {done.returncode}: {done.stderr}")
                settings = dict(chunk_length_s=length)
                if make is moonshine:
                    # The pipeline does not bound texts by the seconds of windows.
                    settings["max_new_tokens"] = model.generation_config.max_length - 1
                for batch in (1, 3):
                    got = planish(args.planish, artifact, sound, settings, batch)
                    compared += 1
                    # The pipeline writes down the last frame of features too where that is masked.
                    is_cut = make is wav2vec2_bert and wanted.startswith(got) and len(wanted) - len(got) < 2
                    if got.split() != wanted.split() and not is_cut:
                        failed += 1
                        print(f"FAIL {make.__name__} {seed}, batch {batch}, {len(samples) / 16000:.1f} s:\n  {got}\n  {wanted}")
    print(f"{compared} texts compared, {failed} differ")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
