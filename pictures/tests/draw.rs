//! Drawing on pictures.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use planish_pictures::{Picture, colour_of, gray_png, gray_png_of_bytes};

fn black(width: usize, height: usize) -> Picture {
    Picture::new(width, height, vec![0; 3 * width * height]).unwrap()
}

fn pixel(picture: &Picture, x: usize, y: usize) -> [u8; 3] {
    picture.pixels()[3 * (y * picture.width() + x)..][..3].try_into().unwrap()
}

#[test]
fn a_frame_is_inside_of_its_box() {
    let mut picture = black(64, 64);
    let red = [255, 0, 0];
    picture.frame([10.0, 20.0, 40.0, 50.0], "", red);
    for (x, y) in [(10, 20), (39, 20), (10, 49), (39, 49), (11, 30), (38, 30)] {
        assert_eq!(pixel(&picture, x, y), red, "{x}, {y}");
    }
    for (x, y) in [(9, 30), (40, 30), (20, 50), (20, 30), (50, 19)] {
        assert_eq!(pixel(&picture, x, y), [0; 3], "{x}, {y}");
    }
}

#[test]
fn a_caption_is_above_its_box() {
    let mut picture = black(128, 64);
    picture.frame([10.0, 20.0, 100.0, 50.0], "I", [255; 3]);
    // Ink in a field of ten rows.
    let field: Vec<[u8; 3]> =
        (10..20).flat_map(|y| (10..20).map(move |x| (x, y))).map(|(x, y)| pixel(&picture, x, y)).collect();
    assert!(field.contains(&[0; 3]) && field.contains(&[255; 3]));
    assert_eq!(pixel(&picture, 20, 15), [0; 3]);
    assert_eq!(pixel(&picture, 15, 9), [0; 3]);
}

#[test]
fn what_is_outside_is_left_out() {
    let mut picture = black(16, 8);
    for sides in [[-50.0, -50.0, 500.0, 500.0], [20.0, 20.0, 10.0, 10.0], [f32::NAN; 4], [f32::MAX, f32::MIN, 0.0, 0.0]]
    {
        picture.frame(sides, "a caption that is longer than the picture \u{4e2d}", [1, 2, 3]);
    }
    assert_eq!((picture.width(), picture.height()), (16, 8));
    // Nothing of a box beyond the picture is in it.
    let mut untouched = black(16, 8);
    untouched.frame([100.0, 100.0, 120.0, 110.0], "far", [1, 2, 3]);
    assert_eq!(untouched, black(16, 8));
    black(1, 1).frame([0.0, 0.0, 1.0, 1.0], "x", [9; 3]);
}

#[test]
fn places_are_tinted() {
    let mut picture = black(2, 1);
    picture.tint([Some([200, 100, 0]), None].into_iter());
    assert_eq!(picture.pixels(), [100, 50, 0, 0, 0, 0]);
    assert_ne!(colour_of(0), colour_of(1));
}

#[test]
fn files_are_read_again() {
    let mut picture = black(3, 2);
    picture.frame([0.0, 0.0, 3.0, 2.0], "", [7, 8, 9]);
    assert_eq!(Picture::decode(&picture.to_png().unwrap()).unwrap(), picture);
    let bytes = Picture::decode(&gray_png_of_bytes(&[0, 5, 255], [3, 1]).unwrap()).unwrap();
    assert_eq!(bytes.pixels(), [0, 0, 0, 5, 5, 5, 255, 255, 255]);
    // The upper bits of samples of 16.
    let samples = Picture::decode(&gray_png(&[0x1234, 0xff00], [1, 2]).unwrap()).unwrap();
    assert_eq!(samples.pixels(), [0x12, 0x12, 0x12, 0xff, 0xff, 0xff]);
    assert!(gray_png(&[1], [2, 2]).is_err());
}
