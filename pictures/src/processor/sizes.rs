//! Sizes of pictures after they are resized.

use std::cmp::Ordering;

/// What a picture is resized to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    /// This height and width.
    Sides([usize; 2]),
    /// Edges of these lengths, in the form of the picture.
    Edges(Edges),
    /// At most this height and width, in the form of the picture.
    Within([usize; 2]),
    /// An edge below 384 over this share, of which the center is kept.
    Share(usize, f64),
    /// Height and width that are multiples of a number, perhaps in the form of the picture.
    Multiples { sides: [usize; 2], of: usize, keeps_form: bool },
    /// Edges as of [`Self::Edges`], rounded down to multiples of 16.
    Sixteens(Edges),
    /// A shortest edge as long as that of these sides.
    Page([usize; 2]),
    /// Multiples of a patch, of at most so many patches.
    Patches { patch: usize, most: usize },
    /// Multiples of a side, near the form of the picture, of so many pixels at least and at most.
    Pixels { of: usize, least: u64, most: u64 },
}

/// The lengths of edges: the shortest, unless the longest would have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edges {
    pub(super) shortest: Option<usize>,
    pub(super) longest: Option<usize>,
}

/// From which shortest edge on [`Size::Share`] keeps the whole picture.
pub(super) const WHOLE: usize = 384;

impl Size {
    /// Height and width for a picture of a height and width, and the center of it that is kept.
    pub(super) fn of(self, [height, width]: [usize; 2]) -> ([usize; 2], Option<[usize; 2]>) {
        let form = [height, width];
        match self {
            Self::Sides(sides) => (sides, None),
            Self::Edges(edges) => (edges.of(form), None),
            Self::Within([most_high, most_wide]) => {
                let scale = (most_high as f64 / height as f64).min(most_wide as f64 / width as f64);
                (form.map(|side| (side as f64 * scale) as usize), None)
            }
            Self::Share(edge, share) if edge < WHOLE => {
                let resized = (edge as f64 / share) as usize;
                (Edges { shortest: Some(resized), longest: None }.of(form), Some([edge, edge]))
            }
            Self::Share(edge, _) => ([edge, edge], None),
            Self::Multiples { sides, of, keeps_form } => {
                let mut scales = [0, 1].map(|i| sides[i] as f64 / form[i] as f64);
                if keeps_form {
                    // The side that changes less decides.
                    let nearer = usize::from((1.0 - scales[1]).abs() < (1.0 - scales[0]).abs());
                    scales = [scales[nearer]; 2];
                }
                let multiple = |i: usize| {
                    let many = scales[i] * form[i] as f64 / of as f64;
                    many.round_ties_even() as usize * of
                };
                ([multiple(0), multiple(1)], None)
            }
            Self::Sixteens(edges) => (edges.of(form).map(|side| side - side % 16), None),
            Self::Page([rows, columns]) => (Edges { shortest: Some(rows.min(columns)), longest: None }.of(form), None),
            Self::Patches { patch, most } => (patches(form, patch, most), None),
            Self::Pixels { of, least, most } => (pixels(form, of, least, most), None),
        }
    }
}

impl Edges {
    /// Height and width. A side has at least one pixel.
    fn of(self, [height, width]: [usize; 2]) -> [usize; 2] {
        let (short, long) = (height.min(width) as f64, height.max(width) as f64);
        let Some(mut edge) = self.shortest else {
            let scale = self.longest.unwrap_or(1) as f64 / long;
            return [height, width].map(|side| (side as f64 * scale + 0.5) as usize);
        };
        let mut exact = edge as f64;
        if let Some(longest) = self.longest.filter(|longest| long / short * exact > *longest as f64) {
            exact = longest as f64 * short / long;
            edge = exact.round_ties_even() as usize;
        }
        // Where the edges are limited, the other one follows from the edge before it was rounded.
        if self.longest.is_some() && height.min(width) == edge {
            return [height, width];
        }
        let other = (exact * long / short) as usize;
        if width <= height { [other, edge] } else { [edge, other] }
    }
}

/// Height and width of a picture that becomes no larger than others, as `DonutImageProcessor.thumbnail` of the transformers library
/// has it.
pub(super) fn within([height, width]: [usize; 2], largest: [usize; 2]) -> [usize; 2] {
    let [rows, columns] = [height.min(largest[0]), width.min(largest[1])];
    match height.cmp(&width) {
        _ if [rows, columns] == [height, width] => [height, width],
        Ordering::Greater => [rows, (width * rows / height).max(1)],
        Ordering::Less => [(height * columns / width).max(1), columns],
        Ordering::Equal => [rows, columns],
    }
}

/// The largest height and width that are multiples of a patch and have at most so many patches, found by halving a range of
/// scales.
fn patches(form: [usize; 2], patch: usize, most: usize) -> [usize; 2] {
    const PRECISION: f64 = 1e-5;
    let scaled = |scale: f64| {
        form.map(|side| ((side as f64 * scale / patch as f64).ceil() as usize).max(1)).map(|many| many * patch)
    };
    let (mut least, mut largest) = (PRECISION / 10.0, 100.0);
    while largest - least >= PRECISION {
        let scale = f64::midpoint(least, largest);
        let [height, width] = scaled(scale).map(|side| side / patch);
        if height * width <= most { least = scale } else { largest = scale }
    }
    scaled(least)
}

/// Height and width that are multiples of a side, of so many pixels at least and at most, as `smart_resize` of the transformers library
/// has it.
fn pixels(form: [usize; 2], of: usize, least: u64, most: u64) -> [usize; 2] {
    let side = of as f64;
    let multiple = |many: f64| many as usize * of;
    let rounded = form.map(|length| multiple((length as f64 / side).round_ties_even()));
    let area = rounded[0] as u64 * rounded[1] as u64;
    let own = form[0] as f64 * form[1] as f64;
    if area > most {
        let scale = (own / most as f64).sqrt();
        form.map(|length| multiple((length as f64 / scale / side).floor()).max(of))
    } else if area < least {
        let scale = (least as f64 / own).sqrt();
        form.map(|length| multiple((length as f64 * scale / side).ceil()))
    } else {
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(shortest: usize, longest: Option<usize>) -> Size {
        Size::Edges(Edges { shortest: Some(shortest), longest })
    }

    /// Sizes that the transformers library gives.
    #[test]
    fn sizes_follow_the_form() {
        for (size, form, expected) in [
            (edges(224, None), [480, 640], [224, 298]),
            (edges(224, None), [641, 333], [431, 224]),
            (edges(800, Some(1333)), [480, 640], [800, 1066]),
            (edges(800, Some(1333)), [333, 1000], [444, 1333]),
            (edges(800, Some(1333)), [100, 1000], [133, 1333]),
            (Size::Sixteens(Edges { shortest: Some(800), longest: Some(1333) }), [480, 640], [800, 1056]),
            (Size::Edges(Edges { shortest: None, longest: Some(1024) }), [333, 500], [682, 1024]),
            (Size::Multiples { sides: [518, 518], of: 14, keeps_form: true }, [480, 640], [518, 686]),
            (Size::Multiples { sides: [384, 384], of: 1, keeps_form: false }, [480, 640], [384, 384]),
            (Size::Patches { patch: 16, most: 256 }, [480, 640], [224, 288]),
            (Size::Patches { patch: 16, most: 256 }, [1, 5000], [16, 4096]),
            (Size::Pixels { of: 28, least: 3136, most: 1_003_520 }, [480, 640], [476, 644]),
            (Size::Pixels { of: 28, least: 3136, most: 1_003_520 }, [1080, 1920], [728, 1316]),
            (Size::Pixels { of: 28, least: 3136, most: 1_003_520 }, [10, 20], [56, 84]),
            (Size::Pixels { of: 32, least: 65_536, most: 16_777_216 }, [48, 80], [224, 352]),
        ] {
            assert_eq!(size.of(form), (expected, None), "{size:?} {form:?}");
        }
        assert_eq!(Size::Share(224, 0.875).of([480, 640]), ([256, 341], Some([224, 224])));
        assert_eq!(Size::Share(384, 0.875).of([480, 640]), ([384, 384], None));
    }
}
