//! Drawing on pictures: frames with captions, and colours of places. Files are PNG.

use font8x8::legacy::{BASIC_LEGACY, LATIN_LEGACY};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use crate::Picture;

/// Red, green and blue.
pub type Colour = [u8; 3];

/// Rows and columns of a character.
const CHARACTER: usize = 8;

/// The characters of ASCII, and those of Latin 1 after them.
const BASIC: &[[u8; CHARACTER]] = &BASIC_LEGACY;
const LATIN: &[[u8; CHARACTER]] = &LATIN_LEGACY;

/// The first character of Latin 1 that is not of ASCII and is drawn.
const FIRST_LATIN: usize = 0xa0;

/// Farther from a picture no side of a box is told from others.
const FARTHEST: f32 = 1e9;

/// The part of a turn that is between the hues of two classes next to each other: by the golden ratio, hues of few classes are
/// far from each other.
const TURN: f64 = 0.618_033_988_749_894_9;

/// A colour of a class, which is not that of the classes next to it.
#[must_use]
pub fn colour_of(class: usize) -> Colour {
    let hue = (class as f64 * TURN).fract() * 6.0;
    // A hue of full saturation, a little darker for each other class.
    let value = if class.is_multiple_of(2) { 255.0 } else { 200.0 };
    [5.0, 3.0, 1.0].map(|from| {
        let at = (from + hue) % 6.0;
        (value * (1.0 - at.min(4.0 - at).clamp(0.0, 1.0))).round() as u8
    })
}

/// The dots of a character, a byte a row, the leftmost in the lowest bit; those of a question mark where the font has none.
fn dots(character: char) -> [u8; CHARACTER] {
    let at = character as usize;
    let found = BASIC.get(at).or_else(|| LATIN.get(at.checked_sub(FIRST_LATIN)?));
    found.copied().unwrap_or(BASIC['?' as usize])
}

impl Picture {
    /// Changes the colour of a pixel, where there is one.
    fn dot(&mut self, x: i64, y: i64, colour: Colour) {
        let place = usize::try_from(x).ok().zip(usize::try_from(y).ok());
        let Some((x, y)) = place.filter(|(x, y)| *x < self.width && *y < self.height) else { return };
        self.pixels[3 * (y * self.width + x)..][..3].copy_from_slice(&colour);
    }

    /// Fills columns from `left` up to `right` of rows from `top` up to `bottom`, as far as they are in the picture.
    fn fill(&mut self, [left, top, right, bottom]: [i64; 4], colour: Colour) {
        let end = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        for y in top.max(0)..bottom.min(end(self.height)) {
            (left.max(0)..right.min(end(self.width))).for_each(|x| self.dot(x, y, colour));
        }
    }

    /// Draws a frame inside of a box of pixels (left, top, right, bottom), and a caption above it, or inside of it where there is
    /// no room above. What is outside of the picture is left out.
    pub fn frame(&mut self, sides: [f32; 4], caption: &str, colour: Colour) {
        let [left, top, right, bottom] = sides.map(|side| side.round().clamp(-FARTHEST, FARTHEST) as i64);
        // A dot of a caption is as large as its size suits the picture's.
        let dot = (self.width.max(self.height) / 640).clamp(1, 8);
        let thick = i64::try_from(2 * dot).unwrap_or(1);
        self.fill([left, top, right, top + thick], colour);
        self.fill([left, bottom - thick, right, bottom], colour);
        self.fill([left, top, left + thick, bottom], colour);
        self.fill([right - thick, top, right, bottom], colour);
        let height = i64::try_from((CHARACTER + 2) * dot).unwrap_or(0);
        let above = top - height;
        self.caption(caption, [left, if above >= 0 { above } else { top.max(0) }], dot, colour);
    }

    /// Draws a line of text on a field of a colour, whose left and upper corner is at a place.
    fn caption(&mut self, text: &str, [left, top]: [i64; 2], dot: usize, colour: Colour) {
        let signed = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        // Characters outside of the picture are not drawn.
        let most = self.width.div_ceil(CHARACTER * dot) + 1;
        let text: Vec<char> = text.chars().take(most).collect();
        let (width, height) = ((text.len() * CHARACTER + 2) * dot, (CHARACTER + 2) * dot);
        // A caption that would end outside begins further to the left.
        let left = left.min(signed(self.width) - signed(width)).max(0);
        self.fill([left, top, left + signed(width), top + signed(height)], colour);
        let [red, green, blue] = colour.map(u32::from);
        let ink = if 299 * red + 587 * green + 114 * blue > 128_000 { [0; 3] } else { [255; 3] };
        for (number, character) in text.into_iter().enumerate() {
            for (row, bits) in dots(character).into_iter().enumerate() {
                for column in (0..CHARACTER).filter(|column| bits >> column & 1 == 1) {
                    let x = left + signed((number * CHARACTER + column + 1) * dot);
                    let y = top + signed((row + 1) * dot);
                    self.fill([x, y, x + signed(dot), y + signed(dot)], ink);
                }
            }
        }
    }

    /// Mixes the colour of each place, row by row, half and half with the picture's; places without one stay.
    pub fn tint(&mut self, colours: impl Iterator<Item = Option<Colour>>) {
        for (pixel, colour) in self.pixels.chunks_exact_mut(3).zip(colours) {
            let Some(colour) = colour else { continue };
            pixel.iter_mut().zip(colour).for_each(|(own, other)| *own = own.midpoint(other));
        }
    }

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// When it is too large for one.
    pub fn to_png(&self) -> Result<Vec<u8>, String> {
        png(&self.pixels, [self.width, self.height], ExtendedColorType::Rgb8)
    }
}

/// A PNG file of gray samples of 16 bits, row by row.
///
/// # Errors
/// When there are not as many as pixels, or too many for a file.
pub fn gray_png(samples: &[u16], [width, height]: [usize; 2]) -> Result<Vec<u8>, String> {
    // The encoder takes samples in the order of this machine's bytes.
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
    png(&bytes, [width, height], ExtendedColorType::L16)
}

/// A PNG file of gray samples of 8 bits, row by row, such as the numbers of classes.
///
/// # Errors
/// As [`gray_png`].
pub fn gray_png_of_bytes(samples: &[u8], sides: [usize; 2]) -> Result<Vec<u8>, String> {
    png(samples, sides, ExtendedColorType::L8)
}

fn png(bytes: &[u8], [width, height]: [usize; 2], form: ExtendedColorType) -> Result<Vec<u8>, String> {
    let sides = u32::try_from(width).ok().zip(u32::try_from(height).ok());
    let (wide, tall) = sides.ok_or_else(|| format!("{width} x {height} pixels are too many for a PNG file"))?;
    let count = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(usize::from(form.bits_per_pixel() / 8)));
    if count != Some(bytes.len()) {
        return Err(format!("{} bytes are not those of {width} x {height} pixels", bytes.len()));
    }
    let mut file = Vec::new();
    PngEncoder::new(&mut file).write_image(bytes, wide, tall, form).map_err(|error| error.to_string())?;
    Ok(file)
}
