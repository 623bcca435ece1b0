//! Pictures against what Pillow and the transformers library read of them (fixtures/pictures/make.py).

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests read what is checked in")]

use std::fs;
use std::path::PathBuf;

use planish_pictures::{Filter, Picture, PictureError, Processor, is_picture};
use proptest::prelude::*;
use safetensors::SafeTensors;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/pictures")
}

fn open(name: &str) -> Picture {
    Picture::open(&folder().join("files").join(name)).unwrap()
}

/// What takes the rest of a tensor's name, its shape and its bytes.
type Visit<'a> = &'a mut dyn FnMut(&str, &[usize], &[u8]);

/// Calls `f` on the tensors whose names begin with a word, with the rest of the name.
fn each(word: &str, f: Visit<'_>) -> usize {
    let bytes = fs::read(folder().join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut count = 0;
    for (name, tensor) in tensors.iter() {
        if let Some(rest) = name.strip_prefix(word).filter(|rest| !rest.ends_with(".mask")) {
            f(rest, tensor.shape(), tensor.data());
            count += 1;
        }
    }
    count
}

fn largest_difference(a: &[u8], b: &[u8]) -> u8 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

#[test]
fn files_of_all_modes_are_decoded_as_pillow_decodes_them() {
    let count = each("decoded.", &mut |name, shape, expected| {
        let picture = open(name);
        assert_eq!([picture.height(), picture.width(), 3], *shape, "{name}");
        // Decoders of JPEG round the cosine transform and the colors in their own ways.
        let most = if name.ends_with(".jpg") { 6 } else { 0 };
        let difference = largest_difference(picture.pixels(), expected);
        assert!(difference <= most, "{name}: {difference}");
        assert!(is_picture(&folder().join(name)), "{name}");
    });
    assert_eq!(count, 23);
    assert!(!is_picture(&folder().join("make.py")));
}

#[test]
fn every_filter_resizes_as_pillow_does() {
    let count = each("resized.", &mut |name, shape, expected| {
        let [number, _, file] = name.splitn(3, '.').collect::<Vec<_>>().try_into().unwrap();
        let filter = Filter::of_number(number.parse().unwrap()).unwrap();
        let resized = open(file).resize(shape[1], shape[0], filter).unwrap();
        assert_eq!(resized.pixels(), expected, "{name}");
    });
    assert_eq!(count, 48);
    assert_eq!(open("tall.png").resize(0, 5, Filter::Box), None);
    assert_eq!(Filter::of_number(6), None);
}

#[test]
fn processors_give_the_numbers_of_the_transformers_library() {
    let bytes = fs::read(folder().join("expected.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let described: Value = serde_json::from_slice(&fs::read(folder().join("processors.json")).unwrap()).unwrap();
    let described = described.as_array().unwrap();
    let count = each("processed.", &mut |number, shape, expected| {
        let own = &described[number.parse::<usize>().unwrap()];
        let processor = Processor::of(own["settings"].as_object().unwrap()).unwrap();
        let pictures: Vec<Picture> =
            own["pictures"].as_array().unwrap().iter().map(|name| open(name.as_str().unwrap())).collect();
        let found = processor.apply(&pictures).unwrap();
        assert_eq!(found.shape, shape, "{own}");
        let expected = expected.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let largest = found.values.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(largest < 1e-6, "{own}: {largest}");
        if let Ok(mask) = tensors.tensor(&format!("processed.{number}.mask")) {
            let mask: Vec<i64> =
                mask.data().as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
            assert_eq!(found.mask, mask, "{own}");
        }
    });
    assert_eq!(count, described.len());
}

fn refused(settings: &Value) -> String {
    Processor::of(settings.as_object().unwrap()).unwrap_err()
}

#[test]
fn settings_that_cannot_be_followed_are_refused() {
    let with = |more: Value| {
        let mut all = json!({"image_processor_type": "ViTImageProcessorFast"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    for (settings, says) in [
        (json!({}), "image_processor_type"),
        (json!({"image_processor_type": "TvpImageProcessor"}), "`TvpImageProcessor` is not supported"),
        (with(json!({"resample": 9})), "`resample` is 9"),
        (with(json!({"size": {"height": 0, "width": 4}})), "`size` is 0"),
        (with(json!({"size": [1, 2, 3]})), "is no size"),
        (with(json!({"size": 1_000_000_000})), "from 1 to 16384"),
        (with(json!({"do_resize": "yes"})), "no boolean"),
        (with(json!({"image_std": [1, 0, 1]})), "has a 0"),
        (with(json!({"image_mean": [1, 0]})), "three numbers"),
        (with(json!({"rescale_factor": "x"})), "no number"),
        (with(json!({"do_thumbnail": true})), "`do_thumbnail` is true"),
        (with(json!({"do_flip_channel_order": true})), "`do_flip_channel_order` is true"),
        (with(json!({"size_divisor": 32})), "`size_divisor` is not supported for the type ViT"),
        (with(json!({"image_std": 1e-60})), "has a 0 in float32"),
        (with(json!({"rescale_factor": 1e300})), "no number of float32"),
        (with(json!({"do_center_crop": true, "crop_size": 16384})), "`crop_size` makes inputs of more than"),
        (with(json!({"do_pad": true, "pad_size": {"height": 16384, "width": 16384}})), "`pad_size` makes inputs"),
        (
            json!({"image_processor_type": "Siglip2ImageProcessor", "patch_size": 8192, "max_num_patches": 16384}),
            "`max_num_patches` makes inputs",
        ),
        (json!({"image_processor_type": "ConvNextImageProcessor", "crop_pct": 0}), "no share"),
        (json!({"image_processor_type": "DPTImageProcessor", "size": {"shortest_edge": 3}}), "`height` and `width`"),
    ] {
        let message = refused(&settings);
        assert!(message.contains(says), "{settings}: {message}");
    }
}

#[test]
fn processors_are_found_in_either_file() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Processor::open(folder.path());
    assert_eq!(open().unwrap(), None);
    let own = json!({"image_processor_type": "CLIPImageProcessor"});
    let write = |name: &str, value: &Value| fs::write(folder.path().join(name), value.to_string()).unwrap();
    write("processor_config.json", &json!({"processor_class": "CLIPProcessor"}));
    assert_eq!(open().unwrap(), None, "a processor of texts");
    write("processor_config.json", &json!({"image_processor": own}));
    let found = open().unwrap().unwrap();
    write("preprocessor_config.json", &own);
    assert_eq!(open().unwrap(), Some(found));
    write("preprocessor_config.json", &json!([1]));
    let message = open().unwrap_err().to_string();
    assert!(message.contains("preprocessor_config.json: it is no object"), "{message}");
}

#[test]
fn pictures_of_other_sizes_are_no_batch() {
    let settings = json!({"image_processor_type": "ViTImageProcessor", "do_resize": false});
    let processor = Processor::of(settings.as_object().unwrap()).unwrap();
    let message = processor.apply(&[open("tall.png"), open("large.png")]).unwrap_err();
    assert!(message.contains("45") && message.contains("give pictures of one size"), "{message}");
    assert_eq!(processor.apply(&[]).unwrap().values.len(), 0);
}

#[test]
fn damaged_files_are_errors() {
    let file = fs::read(folder().join("files/rgb.png")).unwrap();
    for (bytes, says) in [
        (&b""[..], "no PNG, JPEG, WebP, GIF or BMP"),
        (b"hello", "no PNG, JPEG, WebP, GIF or BMP"),
        (&file[..file.len() / 2], "cannot be decoded"),
        (&bomb(), "more than the 178956970"),
    ] {
        let message = Picture::decode(bytes).unwrap_err();
        assert!(message.contains(says), "{message}");
    }
    let missing = Picture::open(&folder().join("files/nothing.png")).unwrap_err();
    assert!(matches!(missing, PictureError::Unreadable(_)), "{missing}");
}

/// A BMP file whose header says 60,000 x 60,000 pixels.
fn bomb() -> Vec<u8> {
    let mut bytes = fs::read(folder().join("files/own.bmp")).unwrap();
    for at in [18, 22] {
        bytes[at..at + 4].copy_from_slice(&60_000u32.to_le_bytes());
    }
    bytes
}

proptest! {
    /// Whatever changes in a file gives a picture or an error.
    #[test]
    fn changed_bytes_do_not_panic(
        name in prop::sample::select(vec!["rgb.png", "palette.png", "own.bmp", "own.gif", "lossy.webp", "own.jpg", "cmyk.jpg"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = fs::read(folder().join("files").join(name)).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        let _ = Picture::decode(&bytes);
    }

    /// Any size is what was asked for, and pictures of one color stay of it.
    #[test]
    fn one_color_stays(width in 1usize..40, height in 1usize..40, to in (1usize..60, 1usize..60), number in 0u64..6, color in any::<u8>()) {
        let picture = Picture::new(width, height, vec![color; 3 * width * height]).unwrap();
        let resized = picture.resize(to.0, to.1, Filter::of_number(number).unwrap()).unwrap();
        prop_assert_eq!((resized.width(), resized.height()), to);
        prop_assert!(resized.pixels().iter().all(|sample| *sample == color));
    }
}
