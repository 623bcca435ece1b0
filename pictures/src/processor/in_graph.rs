//! What a processor does to pictures as a few steps, where a graph of fixed operators can do it.

use super::sizes::{Edges, Size, WHOLE};
use super::{Padding, Processor};
use crate::Filter;

/// The steps of a processor, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InGraph {
    /// The size that pictures are resized to, and how.
    pub resize: Option<(ResizedTo, Filter)>,
    /// Height and width of the center that is kept, which is no larger than the picture.
    pub crop: Option<[usize; 2]>,
    /// What samples are multiplied by.
    pub rescale: Option<f64>,
    /// Mean and standard deviation of the channels.
    pub normalize: Option<[[f64; 3]; 2]>,
    /// Whether channels go from blue to red.
    pub is_bgr: bool,
}

/// What pictures are resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizedTo {
    /// This height and width.
    Sides([usize; 2]),
    /// A shorter edge of this length, in the form of the picture.
    ShortestEdge(usize),
}

impl Processor {
    /// The processor of pictures that stay as they are: their levels as numbers.
    #[must_use]
    pub const fn of_levels() -> Self {
        Self {
            resize: None,
            crop: None,
            rescale: None,
            normalize: None,
            is_bgr: false,
            padding: Padding::None,
            thumbnail: None,
            masks: false,
            patch: None,
            tiling: None,
            squares: None,
        }
    }

    /// Its steps, if all pictures get one size by them.
    ///
    /// # Errors
    /// Why there are none.
    pub fn in_graph(&self) -> Result<InGraph, String> {
        if self.patch.is_some() || self.squares.is_some() {
            return Err("the input is patches, as many as the picture has".to_owned());
        }
        match self.padding {
            Padding::None => {}
            Padding::Largest => return Err("pictures are padded to the largest of a batch".to_owned()),
            Padding::To(_) | Padding::Around(_) | Padding::Multiple(_) => return Err("pictures are padded".to_owned()),
        }
        if self.thumbnail.is_some() {
            return Err("pictures are made no larger than a size after they are resized".to_owned());
        }
        let own = |size: &str| Err(format!("pictures are resized to {size}"));
        let (resize, center) = match self.resize {
            None => (None, None),
            Some((size, filter)) => {
                let (to, center) = match size {
                    Size::Sides(sides) => (ResizedTo::Sides(sides), None),
                    // A size that does not depend on the form.
                    Size::Multiples { keeps_form: false, .. } | Size::Share(WHOLE.., _) => {
                        (ResizedTo::Sides(size.of([1, 1]).0), None)
                    }
                    Size::Edges(Edges { shortest: Some(edge), longest: None }) => (ResizedTo::ShortestEdge(edge), None),
                    Size::Share(edge, share) => {
                        (ResizedTo::ShortestEdge((edge as f64 / share) as usize), Some([edge; 2]))
                    }
                    Size::Edges(_) => return own("edges of a range of lengths"),
                    Size::Within(_) => return own("at most a height and a width"),
                    Size::Multiples { .. } => return own("multiples of a number in the form of the picture"),
                    Size::Sixteens(_) => return own("edges that are multiples of 16"),
                    Size::Page(_) => return own("pages"),
                    Size::Patches { .. } | Size::Pixels { .. } => return own("multiples of a patch"),
                };
                (Some((to, filter)), center)
            }
        };
        if self.crop.is_some() && center.is_some() {
            return Err("the center of pictures is kept twice".to_owned());
        }
        let crop = self.crop.or(center);
        let fits = |least: [usize; 2]| crop.is_none_or(|crop| crop[0] <= least[0] && crop[1] <= least[1]);
        match resize {
            None => return Err("pictures are not resized, so that their sizes differ".to_owned()),
            Some((ResizedTo::ShortestEdge(_), _)) if crop.is_none() => {
                return Err("pictures are resized by their shortest edge and not cropped, so that their sizes differ"
                    .to_owned());
            }
            Some((ResizedTo::Sides(sides), _)) if !fits(sides) => return Err(SMALLER.to_owned()),
            Some((ResizedTo::ShortestEdge(edge), _)) if !fits([edge; 2]) => return Err(SMALLER.to_owned()),
            Some(_) => {}
        }
        let crop = crop.filter(|crop| resize.is_none_or(|(to, _)| to != ResizedTo::Sides(*crop)));
        Ok(InGraph { resize, crop, rescale: self.rescale, normalize: self.normalize, is_bgr: self.is_bgr })
    }
}

/// Why a crop is none.
const SMALLER: &str = "the center that is kept is larger than pictures after they are resized";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn steps(settings: &Value) -> Result<InGraph, String> {
        Processor::of(settings.as_object().unwrap()).unwrap().in_graph()
    }

    #[test]
    fn processors_of_one_size_are_steps() {
        let vit = steps(&json!({"image_processor_type": "ViTImageProcessor"})).unwrap();
        assert_eq!(vit.resize, Some((ResizedTo::Sides([224, 224]), Filter::Bilinear)));
        assert_eq!((vit.crop, vit.rescale), (None, Some(1.0 / 255.0)));
        let deit = steps(&json!({"image_processor_type": "DeiTImageProcessor"})).unwrap();
        assert_eq!(deit.resize, Some((ResizedTo::Sides([256, 256]), Filter::Bicubic)));
        assert_eq!(deit.crop, Some([224, 224]));
        let clip = steps(&json!({"image_processor_type": "CLIPImageProcessor"})).unwrap();
        assert_eq!((clip.resize.unwrap().0, clip.crop), (ResizedTo::ShortestEdge(224), Some([224, 224])));
        for (edge, to, crop) in
            [(224, ResizedTo::ShortestEdge(256), Some([224; 2])), (384, ResizedTo::Sides([384; 2]), None)]
        {
            let size = json!({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": edge}});
            let steps = steps(&size).unwrap();
            assert_eq!((steps.resize.unwrap().0, steps.crop), (to, crop), "{edge}");
        }
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (settings, why) in [
            (json!({"image_processor_type": "DetrImageProcessor"}), "padded to the largest of a batch"),
            (json!({"image_processor_type": "SamImageProcessor"}), "are padded"),
            (json!({"image_processor_type": "Siglip2ImageProcessor"}), "the input is patches"),
            (json!({"image_processor_type": "ViTImageProcessor", "do_resize": false}), "are not resized"),
            (json!({"image_processor_type": "CLIPImageProcessor", "do_center_crop": false}), "and not cropped"),
            (
                json!({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 200}}),
                "is larger than pictures",
            ),
            (
                json!({"image_processor_type": "DPTImageProcessor", "keep_aspect_ratio": true}),
                "in the form of the picture",
            ),
        ] {
            let error = steps(&settings).unwrap_err();
            assert!(error.contains(why), "{settings}: {error}");
        }
    }
}
