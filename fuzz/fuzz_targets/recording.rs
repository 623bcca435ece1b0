//! Any bytes are a recording whose samples are numbers, or an error.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use planish_sounds::Recording;

/// More samples than this are not read: a few bytes may be hours of silence.
const MOST: usize = 1 << 22;

fuzz_target!(|bytes: &[u8]| {
    let read = Recording::of_bytes(bytes.to_vec(), Path::new("recording")).and_then(|read| {
        let mut samples = read.samples(16_000)?;
        samples.take_up_to(MOST)
    });
    match read {
        Ok(samples) => assert!(samples.iter().all(|sample| sample.is_finite())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
