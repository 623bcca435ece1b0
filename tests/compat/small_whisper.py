"""A Whisper of random weights that onnxruntime-genai and Transformers.js load: windows of 30 s, and a tokenizer of bytes.

It is made of fixtures/speech with numpy alone. Only tokens of letters, the space and the end of a text have scores other than 0, so that
its texts are readable.
"""

import json
import wave
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>")
END, START, ENGLISH, TRANSCRIBE = range(256, 260)
FILES = ("config.json", "generation_config.json", "preprocessor_config.json")


def characters() -> list[str]:
    """What stands for each byte in tokenizers of GPT-2's kind."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


def tokenizer() -> dict:
    added = [dict(id=256 + n, content=name, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False) for n, name in enumerate(SPECIAL)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(
        type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False, byte_fallback=False,
        vocab={character: byte for byte, character in enumerate(characters())}, merges=[],
    )  # fmt: skip
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level, post_processor=None, decoder=level,
        model=model,
    )  # fmt: skip


def write(source: Path, folder: Path, seed: int) -> None:
    """Writes the checkpoint into a folder; `source` is fixtures/speech."""
    folder.mkdir()
    config, _, processor = (json.loads((source / name).read_text()) for name in FILES)
    rng = np.random.default_rng(seed)
    tensors = load_file(source / "model.safetensors")
    hidden = config["d_model"]
    tensors["model.encoder.embed_positions.weight"] = rng.normal(0, 0.3, (1500, hidden)).astype(np.float32)
    embeddings = rng.normal(0, 1, (256 + len(SPECIAL), hidden)).astype(np.float32)
    letters = [*b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    embeddings[[id for id in range(len(embeddings)) if id not in letters and id != END]] *= 1e-3
    tensors["model.decoder.embed_tokens.weight"] = embeddings
    tensors.pop("proj_out.weight", None)
    save_file(tensors, folder / "model.safetensors")
    ids = dict(bos_token_id=END, eos_token_id=END, pad_token_id=END, decoder_start_token_id=START)
    settings = (
        config | ids | dict(max_source_positions=1500, vocab_size=len(embeddings)),
        ids | dict(is_multilingual=True, lang_to_id={"<|en|>": ENGLISH}, task_to_id={"transcribe": TRANSCRIBE}, max_length=config["max_target_positions"]),
        processor | dict(chunk_length=30, n_samples=480_000, nb_max_frames=3000),
    )
    special = dict(tokenizer_class="WhisperTokenizer", bos_token=SPECIAL[0], eos_token=SPECIAL[0], pad_token=SPECIAL[0], unk_token=SPECIAL[0])
    files = dict(zip(FILES, settings)) | {"tokenizer.json": tokenizer(), "tokenizer_config.json": special}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def record(path: Path, seed: int) -> np.ndarray:
    """Writes some seconds of noise and tones as 16 bit samples at 16 kHz, and returns them."""
    rng = np.random.default_rng(seed)
    time = np.arange(40_000) / 16_000
    samples = 0.4 * np.sin(2 * np.pi * (200 + 900 * time) * time) + rng.normal(0, 0.1, len(time)) * (np.sin(5 * time) > 0)
    whole = (np.clip(samples, -1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(whole.tobytes())
    return whole.astype(np.float32) / 32768
