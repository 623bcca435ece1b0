//! The settings of preprocessor_config.json, or of the image processor in processor_config.json.

use std::path::Path;

use planish_files::Kind;
use serde_json::{Map, Value};

use super::sizes::{Edges, Size};
use super::squares::Squares;
use super::tiles::Tiling;
use super::types::{Own, TYPES, Type};
use super::{Padding, Processor};
use crate::{Filter, PictureError};

/// The files that say how pictures become inputs, in the order in which they are looked for.
pub const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// The largest side of a picture that a model takes, and the most pixels.
const MAX_SIDE: u64 = 1 << 14;
const MAX_INPUT: usize = 1 << 26;

/// What may be done to pictures by the keys of settings that begin with `do_`; others change them in a way that is not computed here,
/// and these last ones change annotations.
const DOES: [&str; 10] = [
    "do_thumbnail",
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_pad",
    "do_convert_rgb",
    "do_convert_annotations",
    "do_reduce_labels",
    "do_image_splitting",
];

/// Other settings that change pixels in a way that is not computed here.
const OFF: [&str; 2] = ["rescale_offset", "use_square_size"];

impl Processor {
    /// Reads how pictures become inputs of the model in a folder; `None` where no file says it.
    ///
    /// # Errors
    /// When the file is malformed, or has a type or a setting that is not supported.
    pub fn open(folder: &Path) -> Result<Option<Self>, PictureError> {
        for name in FILES {
            let path = folder.join(name);
            let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { continue };
            let wrong = |message: String| PictureError::File { path: path.clone(), message };
            let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let own = value.as_object().ok_or_else(|| wrong("it is no object of JSON".to_owned()))?;
            // A processor of several kinds of inputs has that of pictures inside.
            let of_pictures = match own.get("image_processor") {
                Some(inner) => inner.as_object().ok_or_else(|| wrong("`image_processor` is no object".to_owned()))?,
                None if name == FILES[0] => own,
                None => continue,
            };
            return Self::of(of_pictures).map(Some).map_err(wrong);
        }
        Ok(None)
    }

    /// That of settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of(settings: &Map<String, Value>) -> Result<Self, String> {
        let s = Settings(settings);
        let ty = s.kind()?;
        let filter = match s.get("resample") {
            None => ty.filter,
            Some(number) => number
                .as_u64()
                .and_then(Filter::of_number)
                .ok_or_else(|| format!("`resample` is {number}, and a number from 0 to 5 was expected"))?,
        };
        let crop = match s.get("crop_size") {
            Some(size) => match s.size("crop_size", size, true)? {
                Size::Sides(sides) => Some(sides),
                _ => return Err(format!("`crop_size` is {size}, and has to have `height` and `width`")),
            },
            None => ty.crop,
        };
        let does = |key: &str, default: bool| s.boolean(key).map(|value| value.unwrap_or(default));
        let resize = does("do_resize", true)? || ty.own == Own::Patches;
        let pads = match s.boolean("do_pad")? {
            // What is padded beside tiles are whole images, of which other rows have more.
            _ if ty.own == Own::Tiles => false,
            Some(pads) => pads,
            None => s.boolean("pad_and_return_pixel_mask")?.filter(|_| ty.has_mask).unwrap_or(ty.pads),
        };
        if pads && ty.name == "Llava" {
            return Err("`do_pad` is true: pictures padded to squares are not supported for this type".to_owned());
        }
        let (mean, deviation) = (s.channels("image_mean", ty.mean)?, s.channels("image_std", ty.deviation)?);
        if deviation.iter().any(|deviation| *deviation as f32 == 0.0) {
            return Err("`image_std` has a 0 in float32, by which nothing can be divided".to_owned());
        }
        let own = Self {
            resize: if resize { Some((s.resized(ty)?, filter)) } else { None },
            crop: if does("do_center_crop", ty.crops)? { crop } else { None },
            rescale: if does("do_rescale", true)? { Some(s.number("rescale_factor", 1.0 / 255.0)?) } else { None },
            normalize: if does("do_normalize", ty.normalizes)? { Some([mean, deviation]) } else { None },
            is_bgr: ty.flips && does("do_flip_channel_order", true)?,
            padding: if pads { s.padding(ty)? } else { Padding::None },
            masks: ty.has_mask,
            thumbnail: match s.resized(ty)? {
                Size::Page(sides) if does("do_thumbnail", true)? => Some((sides, filter)),
                _ => None,
            },
            tiling: if ty.own == Own::Tiles { Some(s.tiling(ty, filter, resize)?) } else { None },
            patch: match ty.own {
                Own::Patches => Some([s.side("patch_size", 16)?, s.side("max_num_patches", 256)?]),
                _ => None,
            },
            squares: if ty.own == Own::Squares { Some(s.squares()?) } else { None },
        };
        own.check_sizes()?;
        s.check_keys(ty)?;
        Ok(own)
    }

    /// Refuses inputs of more pixels than models take.
    fn check_sizes(&self) -> Result<(), String> {
        let padded = if let Padding::To(sides) | Padding::Around(sides) = self.padding { Some(sides) } else { None };
        let sizes = [
            ("crop_size", self.crop),
            ("pad_size", padded),
            ("max_num_patches", self.patch.map(|[patch, most]| [patch * patch, most])),
        ];
        for (key, size) in sizes {
            let pixels = size.map_or(Some(0), |[a, b]| a.checked_mul(b));
            if pixels.is_none_or(|pixels| pixels > MAX_INPUT) {
                return Err(format!("`{key}` makes inputs of more than {MAX_INPUT} pixels, which no model takes"));
            }
        }
        Ok(())
    }
}

struct Settings<'a>(&'a Map<String, Value>);

impl Settings<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The type, whose name older files have as a feature extractor, and others with the library that computes it.
    fn kind(&self) -> Result<&'static Type, String> {
        let name = ["image_processor_type", "feature_extractor_type"].into_iter().find_map(|key| self.get(key));
        let Some(name) = name.and_then(Value::as_str) else {
            return Err("it does not say the type of the processor of pictures, `image_processor_type`".to_owned());
        };
        let short = ["Fast", "Pil"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
        let short = ["ImageProcessor", "FeatureExtractor"]
            .iter()
            .fold(short, |name, end| name.strip_suffix(end).unwrap_or(name));
        TYPES.iter().find(|ty| ty.name == short).ok_or_else(|| {
            let names: Vec<&str> = TYPES.iter().map(|ty| ty.name).collect();
            format!("the type `{name}` is not supported; those of {} are", names.join(", "))
        })
    }

    /// Refuses settings that change pixels in a way that is not computed here.
    fn check_keys(&self, ty: &Type) -> Result<(), String> {
        let is_off = |key: &str| match key {
            "do_flip_channel_order" => !ty.flips,
            "do_thumbnail" => ty.own != Own::Page,
            "do_image_splitting" => ty.own != Own::Tiles,
            _ => OFF.contains(&key) || key.starts_with("do_") && !DOES.contains(&key),
        };
        match self.0.iter().find(|(key, value)| **value == true && is_off(key)) {
            Some((key, _)) => Err(format!("`{key}` is true, which is not supported")),
            None if ty.own != Own::Multiples && self.get("size_divisor").is_some() => {
                Err(format!("`size_divisor` is not supported for the type {}", ty.name))
            }
            None => Ok(()),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => value.as_bool().map(Some).ok_or_else(|| format!("`{key}` is {value}, and no boolean")),
        }
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => single(value).ok_or_else(|| format!("`{key}` is {value}, and no number of float32")),
        }
    }

    fn side(&self, key: &str, default: usize) -> Result<usize, String> {
        self.get(key).map_or(Ok(default), |value| length(key, value))
    }

    /// Numbers of the three channels, which may be one.
    fn channels(&self, key: &str, default: [f64; 3]) -> Result<[f64; 3], String> {
        let wrong = |value: &Value| format!("`{key}` is {value}, and three numbers were expected");
        match self.get(key) {
            None => Ok(default),
            Some(Value::Array(list)) => {
                let numbers: Option<Vec<f64>> = list.iter().map(single).collect();
                numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| wrong(&Value::Array(list.clone())))
            }
            Some(value) => single(value).map(|number| [number; 3]).ok_or_else(|| wrong(value)),
        }
    }

    /// What pictures are resized to.
    fn resized(&self, ty: &Type) -> Result<Size, String> {
        if ty.own == Own::Squares {
            let [least, most] = self.pixels()?;
            return Ok(Size::Pixels { of: self.squares()?.length(), least, most });
        }
        let mut size = match self.get("size") {
            None => ty.size,
            // Lists of this type have the width first.
            Some(Value::Array(sides)) if ty.own == Own::Page => {
                self.size("size", &sides.iter().rev().cloned().collect(), ty.is_square)?
            }
            Some(value) => self.size("size", value, ty.is_square)?,
        };
        // Detectors of older files have the longest edge apart.
        if let (Size::Edges(edges), true, Some(Value::Number(_))) = (&mut size, ty.has_mask, self.get("size")) {
            edges.longest = Some(self.side("max_size", 1333)?);
        }
        let of = |what: &str| format!("`size` has to have {what} for this type of processor");
        match (ty.own, size) {
            (Own::Plain | Own::Tiles, size) => Ok(size),
            (Own::CropShare, Size::Edges(Edges { shortest: Some(edge), .. })) => {
                let share = self.number("crop_pct", 224.0 / 256.0)?;
                let fits = share > 0.0 && share <= 1.0;
                if fits { Ok(Size::Share(edge, share)) } else { Err(format!("`crop_pct` is {share}, and no share")) }
            }
            (Own::CropShare, _) => Err(of("`shortest_edge`")),
            (Own::Multiples, Size::Sides(sides)) => Ok(Size::Multiples {
                sides,
                of: self.side("ensure_multiple_of", 1)?,
                keeps_form: self.boolean("keep_aspect_ratio")?.unwrap_or(false),
            }),
            (Own::Multiples, _) => Err(of("`height` and `width`")),
            (Own::Sixteens, Size::Edges(edges)) if edges.longest.is_some() => Ok(Size::Sixteens(edges)),
            (Own::Sixteens, Size::Edges(_)) => Err(of("`shortest_edge` and `longest_edge`")),
            (Own::Sixteens, size) => Ok(size),
            (Own::Page, Size::Sides(sides)) => Ok(Size::Page(sides)),
            (Own::Page, _) => Err(of("`height` and `width`")),
            (Own::Squares, _) => unreachable!("sizes of this type are numbers of pixels"),
            (Own::Patches, _) => {
                Ok(Size::Patches { patch: self.side("patch_size", 16)?, most: self.side("max_num_patches", 256)? })
            }
        }
    }

    /// A size: sides, edges, or one number.
    fn size(&self, key: &str, value: &Value, is_square: bool) -> Result<Size, String> {
        let wrong = || format!("`{key}` is {value}, which is no size: expected height and width, or edges, in pixels");
        match value {
            Value::Array(sides) => match &sides[..] {
                [height, width] => Ok(Size::Sides([length(key, height)?, length(key, width)?])),
                _ => Err(wrong()),
            },
            Value::Object(members) => {
                let member = |name: &str| match members.get(name).filter(|value| !value.is_null()) {
                    None => Ok(None),
                    Some(value) => length(key, value).map(Some),
                };
                let both = |a: &str, b: &str| Ok::<_, String>(member(a)?.zip(member(b)?).map(|(a, b)| [a, b]));
                let edges = Edges { shortest: member("shortest_edge")?, longest: member("longest_edge")? };
                if edges.shortest.is_some() || edges.longest.is_some() {
                    return Ok(Size::Edges(edges));
                }
                if let Some(within) = both("max_height", "max_width")? {
                    return Ok(Size::Within(within));
                }
                both("height", "width")?.map(Size::Sides).ok_or_else(wrong)
            }
            one if is_square => length(key, one).map(|side| Size::Sides([side, side])),
            one => Ok(Size::Edges(Edges { shortest: Some(length(key, one)?), longest: None })),
        }
    }

    /// Squares of patches.
    fn squares(&self) -> Result<Squares, String> {
        let squares = Squares {
            patch: self.side("patch_size", 14)?,
            merge: self.side("merge_size", 2)?,
            frames: self.side("temporal_patch_size", 2)?,
        };
        let pixels =
            [squares.patch, squares.patch, squares.frames].iter().try_fold(3usize, |n, side| n.checked_mul(*side));
        match (pixels, squares.patch.checked_mul(squares.merge)) {
            (Some(..=MAX_INPUT), Some(_)) => Ok(squares),
            _ => Err(format!("`patch_size` and `temporal_patch_size` make patches of more than {MAX_INPUT} numbers")),
        }
    }

    /// The fewest and the most pixels of pictures: of keys of their own, or of `size`.
    fn pixels(&self) -> Result<[u64; 2], String> {
        let size = self.get("size");
        let number = |own: &str, edge: &str, usual: u64| {
            let inner = size.and_then(|size| size.get(edge).or_else(|| size.get(own)));
            let value = self.get(own).or(inner).filter(|value| !value.is_null());
            let Some(value) = value else {
                return if size.is_some() { Err(format!("`size` has no `{edge}`")) } else { Ok(usual) };
            };
            let number = value.as_u64().filter(|number| *number > 0);
            number
                .ok_or_else(|| format!("`{edge}` of `size` or `{own}` is {value}, and a number of pixels was expected"))
        };
        Ok([number("min_pixels", "shortest_edge", 56 * 56)?, number("max_pixels", "longest_edge", 28 * 28 * 1280)?])
    }

    /// How pictures are cut.
    fn tiling(&self, ty: &Type, filter: Filter, resizes: bool) -> Result<Tiling, String> {
        const SIDE: &str = "max_image_size";
        let side = match self.get(SIDE) {
            None => 364,
            Some(Value::Object(members)) => {
                let edge = members.get("longest_edge").filter(|edge| !edge.is_null());
                length(SIDE, edge.ok_or_else(|| format!("`{SIDE}` has no `longest_edge`"))?)?
            }
            Some(value) => return Err(format!("`{SIDE}` is {value}, and has to have `longest_edge`")),
        };
        let longest = match self.resized(ty)? {
            Size::Edges(Edges { longest: Some(longest), shortest: None }) => longest,
            _ => return Err("`size` has to have `longest_edge` for this type of processor".to_owned()),
        };
        let splits = self.boolean("do_image_splitting")?.unwrap_or(true);
        Ok(Tiling { longest: resizes.then_some(longest), side, splits, filter })
    }

    fn padding(&self, ty: &Type) -> Result<Padding, String> {
        let own = self.get("pad_size").map(|value| self.size("pad_size", value, true)).transpose()?;
        match own {
            Some(Size::Sides(sides)) => Ok(Padding::To(sides)),
            Some(_) => Err("`pad_size` has to have `height` and `width`".to_owned()),
            None if ty.own == Own::Page => match self.resized(ty)? {
                Size::Page(sides) => Ok(Padding::Around(sides)),
                _ => Ok(Padding::None),
            },
            None if ty.own == Own::Multiples => Ok(self
                .get("size_divisor")
                .map(|value| length("size_divisor", value))
                .transpose()?
                .map_or(Padding::None, Padding::Multiple)),
            None => match ty.size {
                // Masks are decoded from a square of the longest edge.
                Size::Edges(Edges { shortest: None, longest: Some(longest) }) => Ok(Padding::To([longest; 2])),
                _ => Ok(Padding::Largest),
            },
        }
    }
}

/// A number that float32 holds.
fn single(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| (*number as f32).is_finite())
}

/// A number of pixels.
fn length(key: &str, value: &Value) -> Result<usize, String> {
    let length = value.as_u64().filter(|length| (1..=MAX_SIDE).contains(length));
    let length = length.and_then(|length| usize::try_from(length).ok());
    length.ok_or_else(|| format!("`{key}` is {value}, and a number from 1 to {MAX_SIDE} was expected"))
}
