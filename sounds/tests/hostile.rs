//! Files that are damaged or say what is not true: the right samples or one error each.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests make what they read")]

use std::path::Path;

use planish_sounds::{Recording, SoundError};
use proptest::prelude::*;

/// A WAV file of 16-bit samples, channel after channel of each frame.
fn wav(rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend(1_u16.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate.wrapping_mul(u32::from(channels) * 2)).to_le_bytes());
    file.extend((channels * 2).to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn read(bytes: Vec<u8>, rate: u32) -> Result<Vec<f32>, SoundError> {
    Recording::of_bytes(bytes, Path::new("a.wav"))?.samples(rate)?.all(usize::MAX)
}

fn error(bytes: Vec<u8>) -> String {
    read(bytes, 16_000).unwrap_err().to_string()
}

#[test]
fn channels_are_averaged() {
    let samples: Vec<i16> = (0..800).map(|at| (at % 8) * 1000).collect();
    let read = read(wav(16_000, 8, &samples), 16_000).unwrap();
    assert_eq!(read.len(), 100);
    assert!(read.iter().all(|sample| (sample - 3500.0 / 32_768.0).abs() < 1e-7), "{read:?}");
}

#[test]
fn streams_that_cannot_seek_are_read() {
    let file = wav(16_000, 1, &[16_384; 1000]);
    let read = Recording::of_stream(std::io::Cursor::new(file), Path::new("-")).unwrap();
    assert_eq!((read.rate(), read.channels(), read.seconds()), (16_000, 1, Some(0.0625)));
    let mut samples = read.samples(16_000).unwrap();
    assert_eq!(samples.take_up_to(600).unwrap(), [0.5; 600]);
    assert_eq!(samples.by_ref().map(|block| block.unwrap().len()).sum::<usize>(), 400);
    assert!(samples.take_up_to(1).unwrap().is_empty());
}

#[test]
fn what_is_no_recording_is_an_error() {
    assert_eq!(error(Vec::new()), "a.wav: the file is empty");
    assert!(error(b"# A heading\n".repeat(2000)).contains("this is no recording in WAV, FLAC, MP3, Ogg or MPEG-4"));
    assert!(error(vec![0; 100_000]).contains("this is no recording"));
    assert!(error(wav(16_000, 1, &[])).contains("it has no samples"));
    for rate in [0, 999, 768_001, u32::MAX] {
        let error = error(wav(rate, 1, &[1; 64]));
        assert!(error.contains("samples per second") || error.contains("no recording"), "{rate}: {error}");
    }
    for channels in [0, 65, 16_000] {
        let error = error(wav(16_000, channels, &[1; 64_000]));
        assert!(error.contains("channels") || error.contains("no recording"), "{channels}: {error}");
    }
    let most = Recording::of_bytes(wav(16_000, 1, &[1; 64_000]), Path::new("a.wav")).unwrap();
    let error = most.samples(16_000).unwrap().all(16_000).unwrap_err().to_string();
    assert!(error.contains("it has more than 1 s"), "{error}");
}

#[test]
fn a_length_that_is_not_there_is_not_believed() {
    let mut file = wav(16_000, 1, &[16_384; 1000]);
    for length in [0x7fff_f000_u32, u32::MAX] {
        file[4..8].copy_from_slice(&length.saturating_add(36).to_le_bytes());
        file[40..44].copy_from_slice(&length.to_le_bytes());
        assert_eq!(read(file.clone(), 16_000).unwrap().len(), 1000, "{length}");
    }
}

proptest! {
    #[test]
    fn changed_bytes_give_samples_or_an_error(at in 0_usize..60, byte in any::<u8>(), cut in 0_usize..300) {
        let mut file = wav(22_050, 2, &[500; 100]);
        file[at] = byte;
        file.truncate(file.len().min(cut));
        match read(file, 16_000) {
            Ok(samples) => prop_assert!(samples.iter().all(|sample| sample.is_finite())),
            Err(error) => prop_assert!(error.to_string().starts_with("a.wav: ")),
        }
    }
}
