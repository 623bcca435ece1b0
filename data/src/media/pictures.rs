//! Pictures as inputs of a model: what its preprocessor_config.json says is computed of each.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::{DType, InputRole};
use planish_pictures::{FILES, Grid, Picture, Pixels, Prepared, Processor};

use crate::inputs::Sampling;
use crate::listed;

use super::port::Port;

/// What makes inputs of pictures.
pub struct PictureInputs {
    processor: Processor,
    /// The folder of the processor's settings.
    folder: PathBuf,
    pixels: Port,
    mask: Option<Port>,
    /// Rows and columns of patches.
    grid: Option<Port>,
}

impl PictureInputs {
    /// For a model that takes these inputs; `folder` has the settings of its processor.
    ///
    /// # Errors
    /// When the model takes no pictures, or the settings are missing or not supported.
    pub fn new(wanted: &[(Cow<'_, str>, &Input)], folder: &Path) -> Result<Self> {
        let port = |role: InputRole| Port::find(wanted, role);
        if let Some(pixels) = port(InputRole::Image)? {
            let (processor, folder) = (Processor::of_levels(), folder.to_owned());
            return Ok(Self { processor, folder, pixels, mask: None, grid: None });
        }
        let Some(pixels) = port(InputRole::Pixels)? else {
            if wanted.iter().any(|(_, input)| input.role.is_token_ids()) {
                bail!("the model takes texts, and no pictures; give a .txt, .jsonl, .csv or .parquet file");
            }
            bail!(
                "the model takes no picture: its inputs are {}; give them as .npz or .safetensors, {}",
                listed(wanted),
                Sampling::of(wanted).advice()
            );
        };
        let folder = folder.to_owned();
        let Some(processor) = Processor::open(&folder)? else {
            let [first, second] = FILES;
            bail!(
                "{} has no {first} (or {second}), which says how pictures become `{}`; copy it from the model's page, or give \
                 `{}` as .npz or .safetensors",
                folder.display(),
                pixels.name,
                pixels.name
            );
        };
        let (mask, grid) = (port(InputRole::PixelMask)?, port(InputRole::PatchGrid)?);
        Ok(Self { processor, folder, pixels, mask, grid })
    }

    /// Whether the model processes pictures itself, which may have any size.
    pub(crate) fn is_of_any_size(&self) -> bool {
        self.pixels.input.role == InputRole::Image
    }

    /// A file as the numbers of a picture.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or cannot be processed.
    pub fn read(&self, path: &Path) -> Result<Prepared> {
        let picture = Picture::open(path)?;
        self.processor.prepare(&picture).map_err(|message| anyhow::anyhow!("{}: {message}", path.display()))
    }

    /// The side in patches of the squares that become one place of an image, where pictures become squares of patches.
    #[must_use]
    pub fn side_of_squares(&self) -> Option<usize> {
        self.processor.side_of_squares()
    }

    /// Rows and columns of the tiles of a file's picture, beside the whole of it, or of its patches where pictures have any shape; none
    /// where it is neither.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn grid(&self, path: &Path) -> Result<Grid> {
        if !self.processor.cuts() && self.side_of_squares().is_none() {
            return Ok([0; 2]);
        }
        let picture = Picture::open(path)?;
        self.processor.grid(&picture).map_err(|message| anyhow::anyhow!("{}: {message}", path.display()))
    }

    /// The images that a file's picture becomes: itself, or its tiles and the whole of it.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn tiles(&self, path: &Path) -> Result<Vec<Prepared>> {
        let picture = Picture::open(path)?;
        let tiles = self.processor.tiles(&picture);
        Ok(tiles.map_err(|message| anyhow::anyhow!("{}: {message}", path.display()))?.images)
    }

    /// Pictures as inputs, a row each.
    ///
    /// # Errors
    /// When they are not of one size, or not what the model takes.
    pub fn inputs(&self, pictures: Vec<Prepared>) -> Result<Vec<(String, Tensor)>> {
        let Pixels { values, shape, mask, sizes } = self.processor.batch(pictures).map_err(anyhow::Error::msg)?;
        if self.pixels.input.role == InputRole::Image {
            return self.levels(&values, &shape);
        }
        self.check(&shape)?;
        if self.mask.is_none() && self.processor.masks_padding() && mask.contains(&0) {
            let [file, _] = FILES.map(|file| self.folder.join(file));
            bail!(
                "pictures are padded to {:?}, and the model takes no mask of the padding, which would change its outputs; give one \
                 picture at a time, without `pad_size` in {}",
                &shape[1..],
                file.display()
            );
        }
        let of_mask: Vec<usize> = match *shape.as_slice() {
            [rows, _, height, width] => vec![rows, height, width],
            _ => shape.iter().take(2).copied().collect(),
        };
        let tensor = |port: &Port, tensor: Option<Tensor>| {
            let tensor = tensor.with_context(|| format!("pictures cannot become `{}`, {}", port.name, port.dtype))?;
            Ok::<_, anyhow::Error>((port.name.clone(), tensor))
        };
        let values = match self.pixels.dtype {
            DType::F32 => Tensor::new(shape, values),
            dtype if dtype.is_float() => {
                Tensor::from_f64(dtype, shape, &values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
            }
            other => {
                bail!("pictures become floats, and `{}` is {other}; give it as .npz or .safetensors", self.pixels.name)
            }
        };
        let mut inputs = vec![tensor(&self.pixels, values)?];
        let integers = |port: &Port, shape: Vec<usize>, numbers: Vec<i64>| match port.dtype {
            DType::I64 => Tensor::new(shape, numbers),
            dtype => Tensor::from_f64(dtype, shape, &numbers.iter().map(|number| *number as f64).collect::<Vec<_>>()),
        };
        if let Some(port) = &self.mask {
            inputs.push(tensor(port, integers(port, of_mask, mask))?);
        }
        if let Some(port) = &self.grid {
            // Sizes of pictures are bounded.
            let sides: Vec<i64> = sizes.iter().flatten().map(|side| i64::try_from(*side).unwrap_or(i64::MAX)).collect();
            let (width, sides) = match port.input.value.dims().get(1).and_then(|dim| dim.as_constant()) {
                // A picture is one frame.
                Some(3) => (3, sides.chunks(2).flat_map(|sides| [&[1], sides].concat()).collect()),
                _ => (2, sides),
            };
            inputs.push(tensor(port, integers(port, vec![sizes.len(), width], sides))?);
        }
        Ok(inputs)
    }

    /// Levels of channels, [rows, 3, height, width], as levels of pixels, [rows, height, width, 3].
    fn levels(&self, values: &[f32], shape: &[usize]) -> Result<Vec<(String, Tensor)>> {
        let &[rows, channels, height, width] = shape else { bail!("pictures have 4 axes, and these {}", shape.len()) };
        let plane = height * width;
        let mut levels = Vec::with_capacity(values.len());
        for picture in values.chunks_exact((channels * plane).max(1)) {
            levels.extend((0..plane).flat_map(|at| (0..channels).map(move |c| f64::from(picture[c * plane + at]))));
        }
        let shape = vec![rows, height, width, channels];
        self.check(&shape)?;
        let Port { name, dtype, .. } = &self.pixels;
        let tensor = Tensor::from_f64(*dtype, shape, &levels);
        let tensor = tensor.with_context(|| format!("pictures cannot become `{name}`, {dtype}"))?;
        Ok(vec![(name.clone(), tensor)])
    }

    /// Checks what a picture became; the number of rows is checked with all inputs.
    fn check(&self, shape: &[usize]) -> Result<()> {
        let dims = self.pixels.input.value.dims();
        // Images of a row are in a list.
        let dims = if dims.len() > shape.len() { &dims[1..] } else { dims };
        let is_same = |(dim, size): (&planish_ir::Dim, &usize)| {
            dim.as_constant().is_none_or(|fixed| usize::try_from(fixed) == Ok(*size))
        };
        if dims.len() == shape.len() && dims.iter().zip(shape).skip(1).all(is_same) {
            return Ok(());
        }
        let [file, _] = FILES.map(|file| self.folder.join(file));
        let (what, keys) = match self.processor.cuts() {
            true => ("a tile of a picture", "`max_image_size`"),
            false => ("a picture", "`size` or `crop_size`"),
        };
        bail!(
            "{what} becomes {:?} by {}, and `{}` is {}; set {keys} there to the pixels that the model takes",
            &shape[1..],
            file.display(),
            self.pixels.name,
            self.pixels.input.value.ty
        )
    }
}
