//! The types of image processors of the transformers library, and what they do where preprocessor_config.json says nothing.

use crate::Filter;

use super::sizes::{Edges, Size};

/// How a type makes sizes of its settings, beyond what all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// As its size says.
    Plain,
    /// Edges below 384 are resized to the edge over `crop_pct`, and the center is kept; larger ones are both edges.
    CropShare,
    /// Sides are multiples of `ensure_multiple_of`, with `keep_aspect_ratio` of the picture's form.
    Multiples,
    /// Sides are rounded down to multiples of 16.
    Sixteens,
    /// As many patches as there may be.
    Patches,
    /// The shortest edge is that of the size, then the picture becomes no larger than the size, and is put in the middle of it.
    Page,
    /// Tiles of `max_image_size`, and the whole picture.
    Tiles,
    /// Sides are multiples of squares of patches, and there are so many pixels; all patches are in one row, square by square.
    Squares,
}

/// What a type does by itself.
pub(super) struct Type {
    /// The name before `ImageProcessor`.
    pub(super) name: &'static str,
    pub(super) own: Own,
    pub(super) filter: Filter,
    pub(super) size: Size,
    /// What one number is for a size: both sides, or the shortest edge.
    pub(super) is_square: bool,
    /// The size of the center that is kept.
    pub(super) crop: Option<[usize; 2]>,
    pub(super) crops: bool,
    pub(super) normalizes: bool,
    /// Mean and standard deviation of the channels.
    pub(super) mean: [f64; 3],
    pub(super) deviation: [f64; 3],
    pub(super) pads: bool,
    /// Whether channels go from blue to red.
    pub(super) flips: bool,
    /// Whether the size of padding is a mask too.
    pub(super) has_mask: bool,
}

const HALF: [f64; 3] = [0.5; 3];
const IMAGENET: [[f64; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
const OPENAI: [[f64; 3]; 2] = [[0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]];

const fn square(side: usize) -> Size {
    Size::Sides([side, side])
}

/// What most have: a square of 224 pixels, of numbers from -1 to 1.
const PLAIN: Type = Type {
    name: "ViT",
    own: Own::Plain,
    filter: Filter::Bilinear,
    size: square(224),
    is_square: true,
    crop: None,
    crops: false,
    normalizes: true,
    mean: HALF,
    deviation: HALF,
    pads: false,
    flips: false,
    has_mask: false,
};

const CLIP: Type = Type {
    name: "CLIP",
    filter: Filter::Bicubic,
    size: Size::Edges(Edges { shortest: Some(224), longest: None }),
    is_square: false,
    crop: Some([224, 224]),
    crops: true,
    mean: OPENAI[0],
    deviation: OPENAI[1],
    ..PLAIN
};

const TILED: Type = Type {
    name: "Idefics3",
    own: Own::Tiles,
    filter: Filter::Lanczos,
    size: Size::Edges(Edges { shortest: None, longest: Some(4 * 364) }),
    is_square: false,
    ..PLAIN
};

const SQUARES: Type = Type {
    name: "Qwen2VL",
    own: Own::Squares,
    filter: Filter::Bicubic,
    mean: OPENAI[0],
    deviation: OPENAI[1],
    ..PLAIN
};

const DETR: Type = Type {
    name: "Detr",
    size: Size::Edges(Edges { shortest: Some(800), longest: Some(1333) }),
    is_square: false,
    mean: IMAGENET[0],
    deviation: IMAGENET[1],
    pads: true,
    has_mask: true,
    ..PLAIN
};

/// The types, by their names.
pub(super) const TYPES: [Type; 28] = [
    PLAIN,
    SQUARES,
    Type { name: "DeiT", filter: Filter::Bicubic, size: square(256), crop: Some([224, 224]), crops: true, ..PLAIN },
    Type { name: "Beit", filter: Filter::Bicubic, crop: Some([224, 224]), ..PLAIN },
    Type { name: "Bit", ..CLIP },
    Type {
        name: "ConvNext",
        own: Own::CropShare,
        filter: Filter::Bicubic,
        size: Size::Edges(Edges { shortest: Some(384), longest: None }),
        is_square: false,
        ..PLAIN
    },
    CLIP,
    Type { name: "ChineseCLIP", ..CLIP },
    Type { name: "Siglip", filter: Filter::Bicubic, ..PLAIN },
    Type { name: "Siglip2", own: Own::Patches, ..PLAIN },
    Type { name: "Segformer", size: square(512), mean: IMAGENET[0], deviation: IMAGENET[1], ..PLAIN },
    Type { name: "DPT", own: Own::Multiples, filter: Filter::Bicubic, size: square(384), ..PLAIN },
    DETR,
    Type { name: "ConditionalDetr", ..DETR },
    Type { name: "DeformableDetr", ..DETR },
    Type { name: "GroundingDino", ..DETR },
    Type { name: "Yolos", own: Own::Sixteens, ..DETR },
    Type { name: "RTDetr", size: square(640), normalizes: false, pads: false, ..DETR },
    Type {
        name: "MobileViT",
        filter: Filter::Bicubic,
        size: Size::Edges(Edges { shortest: Some(224), longest: None }),
        is_square: false,
        crop: Some([256, 256]),
        crops: true,
        normalizes: false,
        flips: true,
        ..PLAIN
    },
    Type {
        name: "Sam",
        size: Size::Edges(Edges { shortest: None, longest: Some(1024) }),
        mean: IMAGENET[0],
        deviation: IMAGENET[1],
        pads: true,
        ..PLAIN
    },
    Type { name: "DINOv3ViT", mean: IMAGENET[0], deviation: IMAGENET[1], ..PLAIN },
    Type { name: "Blip", size: square(384), crop: None, crops: false, is_square: true, ..CLIP },
    Type { name: "Donut", own: Own::Page, size: Size::Sides([2560, 1920]), pads: true, ..PLAIN },
    Type { name: "Pvt", filter: Filter::Bicubic, mean: IMAGENET[0], deviation: IMAGENET[1], ..PLAIN },
    Type { name: "Gemma3", ..PLAIN },
    TILED,
    Type { name: "SmolVLM", ..TILED },
    Type { name: "Llava", ..CLIP },
];
