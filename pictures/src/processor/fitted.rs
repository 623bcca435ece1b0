//! Settings of a processor for pictures of another size.

use serde_json::{Map, Value, json};

use super::sizes::{Edges, Size};
use super::{Padding, Processor};

impl Processor {
    /// Height and width that all pictures become, or their tiles; `None` where they depend on the picture.
    #[must_use]
    pub fn size(&self) -> Option<[usize; 2]> {
        if let Some(tiling) = &self.tiling {
            return Some([tiling.side; 2]);
        }
        match (self.padding, self.crop, self.resize) {
            _ if self.patch.is_some() || self.squares.is_some() => None,
            (Padding::Multiple(_), ..) => None,
            (Padding::To(sides) | Padding::Around(sides), ..)
            | (_, Some(sides), _)
            | (_, _, Some((Size::Sides(sides), _))) => Some(sides),
            (_, _, Some((Size::Share(edge, _), _))) => Some([edge; 2]),
            _ => None,
        }
    }
}

/// Changes settings so that all pictures become `size`, or their tiles do. A center that is cropped keeps its share of the picture, and
/// a picture as many tiles.
///
/// # Errors
/// When the settings are not supported, or have no such size.
pub fn fit(settings: &mut Map<String, Value>, size: [usize; 2]) -> Result<(), String> {
    let own = Processor::of(settings)?;
    let before = own.size().ok_or("its settings give no size of all pictures")?;
    if before == size {
        return Ok(());
    }
    let sides = |[height, width]: [usize; 2]| json!({"height": height, "width": width});
    let scale = |length: usize, side: usize| (length as f64 * size[side] as f64 / before[side] as f64).round() as u64;
    let larger = |length: usize| scale(length, 0).max(scale(length, 1));
    if let Some(tiling) = own.tiling {
        if size[0] != size[1] {
            return Err("it cuts pictures to tiles, which are squares".to_owned());
        }
        settings.insert("max_image_size".to_owned(), json!({"longest_edge": size[0]}));
        if let Some(longest) = tiling.longest {
            settings.insert("size".to_owned(), json!({"longest_edge": larger(longest)}));
        }
        return has_size(settings, size);
    }
    match (own.crop, own.resize) {
        (Some(_), resize) => {
            settings.insert("crop_size".to_owned(), sides(size));
            let resized = match resize {
                None => None,
                Some((Size::Sides([height, width]), _)) => {
                    Some(json!({"height": scale(height, 0), "width": scale(width, 1)}))
                }
                Some((Size::Edges(Edges { shortest: Some(shortest), longest: None }), _)) => {
                    Some(json!({"shortest_edge": larger(shortest)}))
                }
                Some(_) => return Err("it crops pictures of sizes that depend on the picture".to_owned()),
            };
            resized.and_then(|resized| settings.insert("size".to_owned(), resized));
        }
        (None, Some((Size::Share(..), _))) => {
            settings.insert("size".to_owned(), json!({"shortest_edge": size[0]}));
        }
        (None, _) => {
            settings.insert("size".to_owned(), sides(size));
        }
    }
    has_size(settings, size)
}

/// Refuses settings that do not give this size.
fn has_size(settings: &Map<String, Value>, size: [usize; 2]) -> Result<(), String> {
    match Processor::of(settings)?.size() == Some(size) {
        true => Ok(()),
        false => Err("its settings have no such size".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(settings: &Value, size: [usize; 2]) -> Result<Value, String> {
        let mut settings = settings.as_object().unwrap().clone();
        fit(&mut settings, size)?;
        Ok(settings.into())
    }

    #[test]
    fn pictures_become_the_size() {
        let plain = json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}});
        let wide = fitted(&plain, [384, 512]).unwrap();
        assert_eq!(wide["size"], json!({"height": 384, "width": 512}));
        assert_eq!(fitted(&plain, [224, 224]).unwrap(), plain);
    }

    #[test]
    fn a_center_keeps_its_share() {
        let crops = json!({
            "image_processor_type": "BitImageProcessor", "do_center_crop": true,
            "crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256},
        });
        let large = fitted(&crops, [448, 518]).unwrap();
        assert_eq!(large["crop_size"], json!({"height": 448, "width": 518}));
        assert_eq!(large["size"], json!({"shortest_edge": 592}));
        let sides = json!({
            "image_processor_type": "DeiTImageProcessor", "size": {"height": 256, "width": 256},
            "crop_size": {"height": 224, "width": 224},
        });
        let large = fitted(&sides, [448, 224]).unwrap();
        assert_eq!(large["size"], json!({"height": 512, "width": 256}));
    }

    #[test]
    fn a_picture_keeps_the_number_of_its_tiles() {
        let tiles = json!({
            "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 1456},
            "max_image_size": {"longest_edge": 364},
        });
        assert_eq!(Processor::of(tiles.as_object().unwrap()).unwrap().size(), Some([364; 2]));
        let large = fitted(&tiles, [512, 512]).unwrap();
        assert_eq!(large["max_image_size"], json!({"longest_edge": 512}));
        assert_eq!(large["size"], json!({"longest_edge": 2048}));
        assert!(fitted(&tiles, [512, 364]).unwrap_err().contains("squares"));
    }

    #[test]
    fn what_has_no_size_is_left() {
        let any = json!({"image_processor_type": "DetrImageProcessor"});
        assert!(fitted(&any, [224, 224]).unwrap_err().contains("no size of all pictures"));
        assert!(fitted(&json!({"image_processor_type": "Other"}), [8, 8]).unwrap_err().contains("`Other`"));
    }
}
