//! Any bytes are a picture that has all of its pixels, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_pictures::Picture;

fuzz_target!(|bytes: &[u8]| {
    match Picture::decode(bytes) {
        Ok(picture) => assert_eq!(picture.pixels().len(), picture.width() * picture.height() * 3),
        Err(message) => assert!(!message.is_empty()),
    }
});
