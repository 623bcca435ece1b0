//! Pictures: bytes of a file as 8-bit RGB.

use std::io::Cursor;
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageReader, Limits};
use planish_files::Kind;

use crate::PictureError;

/// The most pixels that a picture may have: more are a decompression bomb to Pillow too.
pub const MAX_PIXELS: u64 = 178_956_970;

/// The most bytes that decoding a picture may allocate.
const MAX_BYTES: u64 = 8 * MAX_PIXELS;

/// The files that pictures are read from.
const FILE: Kind = Kind { what: "a picture", limit: 512 << 20, advice: "give a smaller picture" };

/// The endings of the names of pictures, in lower case.
pub const ENDINGS: [&str; 6] = ["png", "jpg", "jpeg", "webp", "gif", "bmp"];

/// Whether a file is a picture by the ending of its name.
#[must_use]
pub fn is_picture(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// A picture in RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// [height, width, 3].
    pub(crate) pixels: Vec<u8>,
}

impl Picture {
    /// A picture of pixels, [height, width, 3]. `None` where their number is another, or there are none.
    #[must_use]
    pub fn new(width: usize, height: usize, pixels: Vec<u8>) -> Option<Self> {
        let count = width.checked_mul(height)?.checked_mul(3)?;
        (count == pixels.len() && count > 0).then_some(Self { width, height, pixels })
    }

    /// Reads a PNG, JPEG, WebP, GIF or BMP file, by what its first bytes say; see [`decode`](Self::decode).
    ///
    /// # Errors
    /// When the file cannot be read, is none of these, or is damaged or too large.
    pub fn open(path: &Path) -> Result<Self, PictureError> {
        let bytes = planish_files::read(path, &FILE)?;
        Self::decode(&bytes).map_err(|message| PictureError::File { path: path.to_owned(), message })
    }

    /// Decodes a picture: upright, as its EXIF data says; of an animation the first frame; without its transparency; of 16-bit
    /// samples the upper 8 bits.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
        if reader.format().is_none() {
            return Err("this is no PNG, JPEG, WebP, GIF or BMP file".to_owned());
        }
        let failed = |error: image::ImageError| format!("the picture cannot be decoded: {error}");
        let mut decoder = reader.into_decoder().map_err(failed)?;
        let (width, height) = decoder.dimensions();
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(format!("{width} x {height} pixels are more than the {MAX_PIXELS} that a picture may have"));
        }
        if width == 0 || height == 0 {
            return Err("it has no pixels".to_owned());
        }
        let mut limits = Limits::default();
        limits.max_alloc = Some(MAX_BYTES);
        decoder.set_limits(limits).map_err(failed)?;
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(failed)?;
        decoded.apply_orientation(orientation);
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        let pixels = match decoded {
            DynamicImage::ImageLuma8(_) | DynamicImage::ImageLumaA8(_) | DynamicImage::ImageRgba8(_) => {
                decoded.to_rgb8().into_raw()
            }
            DynamicImage::ImageRgb8(pixels) => pixels.into_raw(),
            // Pillow reads the upper bits, and rounds nothing.
            DynamicImage::ImageRgb16(pixels) => pixels.into_raw().into_iter().map(upper).collect(),
            DynamicImage::ImageRgba16(pixels) => {
                pixels.into_raw().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]].map(upper)).collect()
            }
            DynamicImage::ImageLuma16(pixels) => {
                pixels.into_raw().into_iter().flat_map(|gray| [upper(gray); 3]).collect()
            }
            DynamicImage::ImageLumaA16(pixels) => {
                pixels.into_raw().chunks_exact(2).flat_map(|pixel| [upper(pixel[0]); 3]).collect()
            }
            other => return Err(format!("its pixels are {:?}, which are not read", other.color())),
        };
        Self::new(width, height, pixels).ok_or_else(|| "its pixels are incomplete".to_owned())
    }

    /// The number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// The pixels: [height, width, 3].
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The rectangle of some columns and rows, which may lie outside of the picture: black there.
    #[must_use]
    pub fn cut(&self, left: i64, top: i64, width: usize, height: usize) -> Option<Self> {
        let mut pixels = vec![0; width.checked_mul(height)?.checked_mul(3)?];
        for (row, line) in pixels.chunks_exact_mut(3 * width.max(1)).enumerate() {
            let Some(y) = inside(top, row, self.height) else { continue };
            for (column, pixel) in line.chunks_exact_mut(3).enumerate() {
                let Some(x) = inside(left, column, self.width) else { continue };
                pixel.copy_from_slice(&self.pixels[3 * (y * self.width + x)..][..3]);
            }
        }
        Self::new(width, height, pixels)
    }
}

/// The place `first + at`, where it is below `end`.
fn inside(first: i64, at: usize, end: usize) -> Option<usize> {
    let place = first.checked_add(i64::try_from(at).ok()?)?;
    usize::try_from(place).ok().filter(|place| *place < end)
}

fn upper(sample: u16) -> u8 {
    (sample >> 8) as u8
}
