//! Recordings against what FFmpeg and the transformers library read of them (fixtures/sounds/make.py).

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests read what is checked in")]

use std::fs;
use std::path::PathBuf;

use planish_sounds::{Processor, Recording, is_recording};
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/sounds")
}

fn file(name: &str) -> PathBuf {
    folder().join("files").join(name)
}

fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn files_of_all_formats_are_decoded_as_ffmpeg_decodes_them() {
    let bytes = fs::read(folder().join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut count = 0;
    for (name, tensor) in tensors.iter() {
        let Some(name) = name.strip_prefix("decoded.") else { continue };
        let recording = Recording::open(&file(name)).unwrap();
        let rate = recording.rate();
        let read = recording.samples(rate).unwrap().all(1 << 20).unwrap();
        let expected = floats(&tensor);
        let is_lossy = [".mp3", ".ogg", ".aac", "mono.m4a"].iter().any(|ending| name.ends_with(ending));
        // FFmpeg leaves out what the encoder of AAC puts before the sound, where the file says how much it is.
        let read = if name == "mono.m4a" { &read[1024..] } else { &read[..] };
        // And it leaves out the last samples of Vorbis, which are 3200.
        let read = if name == "stereo.ogg" { &read[..3072] } else { read };
        assert_eq!(read.len(), expected.len(), "{name}");
        let difference = largest_difference(read, &expected);
        let most = if is_lossy { 2e-5 } else { 1e-7 };
        assert!(difference <= most, "{name}: {difference}");
        assert!(is_recording(&file(name)), "{name}");
        count += 1;
    }
    assert_eq!(count, 15);
    assert!(!is_recording(&folder().join("make.py")));
}

#[test]
fn files_that_are_cut_off_give_what_is_there_or_an_error() {
    for entry in fs::read_dir(folder().join("files")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let whole = Recording::open(&path).unwrap().samples(16_000).unwrap().all(1 << 20).unwrap();
        for tenths in 0..10 {
            let cut = bytes[..bytes.len() * tenths / 10].to_vec();
            let read = Recording::of_bytes(cut, &path).and_then(|read| read.samples(16_000)?.all(1 << 20));
            match read {
                Ok(read) => assert!(read.len() <= whole.len() && !read.is_empty(), "{}", path.display()),
                Err(error) => assert!(error.to_string().starts_with(&path.display().to_string()), "{error}"),
            }
        }
    }
}

#[test]
fn processors_give_the_numbers_of_the_transformers_library() {
    let bytes = fs::read(folder().join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let described: Value = serde_json::from_slice(&fs::read(folder().join("processors.json")).unwrap()).unwrap();
    for (number, own) in described.as_array().unwrap().iter().enumerate() {
        let processor = Processor::of(own["settings"].as_object().unwrap()).unwrap();
        let names = own["recordings"].as_array().unwrap().iter();
        let read: Vec<_> = names.map(|name| processor.read(&file(name.as_str().unwrap())).unwrap()).collect();
        let sounds = processor.batch(&read).unwrap();
        let expected = tensors.tensor(&format!("processed.{number}")).unwrap();
        assert_eq!(sounds.shape, expected.shape(), "{own}");
        let difference = largest_difference(&sounds.values, &floats(&expected));
        assert!(difference < 1e-4, "{number} {own}: {difference}");
        if let Ok(mask) = tensors.tensor(&format!("processed.{number}.mask")) {
            let mask_bytes: Vec<u8> = sounds.mask.iter().map(|place| u8::from(*place == 1)).collect();
            assert_eq!(sounds.mask_shape, mask.shape(), "{own}");
            assert_eq!(mask_bytes, mask.data(), "{number} {own}");
        }
    }
}

#[test]
fn settings_that_are_not_computed_are_refused() {
    let error = |settings: Value| Processor::of(settings.as_object().unwrap()).err().unwrap();
    let whisper = |key: &str, value: Value| json!({"feature_extractor_type": "WhisperFeatureExtractor", key: value});
    assert!(error(whisper("dither", json!(0.1))).contains("`dither` adds random noise"));
    assert!(error(whisper("sampling_rate", json!(0))).contains("`sampling_rate` is 0"));
    assert!(error(whisper("n_fft", json!(1_u64 << 40))).contains("`n_fft`"));
    assert!(error(whisper("chunk_length", json!(1 << 20))).contains("`chunk_length`"));
    assert!(error(whisper("padding_side", json!("up"))).contains("right, left were expected"));
    let other = json!({"feature_extractor_type": "EncodecFeatureExtractor"});
    assert!(error(other).contains("\"EncodecFeatureExtractor\" is not supported; those of Wav2Vec2"));
    assert!(error(json!({"size": 224})).contains("`feature_extractor_type`"));
    let ast = json!({"feature_extractor_type": "ASTFeatureExtractor", "sampling_rate": 22_050});
    assert!(error(ast).contains("`sampling_rate` is 22050"));
    // The first models do not name a type.
    let old = json!({"do_normalize": true, "feature_size": 1, "sampling_rate": 16_000});
    assert!(Processor::of(old.as_object().unwrap()).unwrap().gives_waveforms());
}

#[test]
fn recordings_that_are_too_short_are_errors() {
    let of = |ty: &str| Processor::of(json!({"feature_extractor_type": ty}).as_object().unwrap()).unwrap();
    for ty in ["ASTFeatureExtractor", "SeamlessM4TFeatureExtractor", "ParakeetFeatureExtractor"] {
        assert!(of(ty).prepare(&[0.5; 100]).unwrap_err().contains("it has 100 samples"), "{ty}");
    }
    for ty in ["WhisperFeatureExtractor", "ClapFeatureExtractor", "Wav2Vec2FeatureExtractor"] {
        assert!(of(ty).prepare(&[0.5]).is_ok(), "{ty}");
        assert_eq!(of(ty).prepare(&[]).unwrap_err(), "it has no samples");
    }
}
