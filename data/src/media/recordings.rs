//! Recordings as inputs of a model: what its preprocessor_config.json says is computed of each.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::{DType, InputRole};
use planish_sounds::{FILES, Prepared, Processor, SoundError, Sounds};

use crate::inputs::Sampling;
use crate::listed;
use crate::tokenizer::ctc::{fewest_samples, frame_places};

use super::port::Port;

/// What makes inputs of recordings.
pub struct SoundInputs {
    processor: Processor,
    /// The folder of the processor's settings.
    folder: PathBuf,
    values: Port,
    mask: Option<Port>,
    is_longer: Option<Port>,
    /// Where recordings are, for a graph that processes them.
    own_mask: Option<Port>,
    /// Whether recordings of other lengths change the outputs: the model reads what fills recordings up, or it makes one frame of several places, so
    /// that its mask is none of its outputs.
    reads_padding: bool,
    /// The fewest samples that the model makes a frame of, where it is known.
    fewest: Option<usize>,
}

impl SoundInputs {
    /// For a model that takes these inputs; `folder` has the settings of its processor.
    ///
    /// # Errors
    /// When the model takes no recordings, or the settings are missing, not supported or of other inputs.
    pub fn new(wanted: &[(Cow<'_, str>, &Input)], folder: &Path) -> Result<Self> {
        let roles = [InputRole::Recording, InputRole::Waveform, InputRole::Features];
        let [recording, waveform, features] = roles.map(|role| Port::find(wanted, role));
        let Some(values) = recording?.or(waveform?).or(features?) else {
            if wanted.iter().any(|(_, input)| input.role.is_token_ids()) {
                bail!("the model takes texts, and no recordings; give a .txt, .jsonl, .csv or .parquet file");
            }
            bail!(
                "the model takes no recording: its inputs are {}; give them as .npz or .safetensors, {}",
                listed(wanted),
                Sampling::of(wanted).advice()
            );
        };
        let [first, second] = FILES;
        let Some(processor) = Processor::open(folder)? else {
            bail!(
                "{} has no {first} (or {second}), which says how recordings become `{name}`; copy it from the model's page, or give \
                 `{name}` as .npz or .safetensors",
                folder.display(),
                name = values.name
            );
        };
        let is_in_graph = values.input.role == InputRole::Recording;
        let of_samples = processor.gives_waveforms();
        // Inputs of graphs of ONNX have their role by a name that some features have too.
        let is_waveform = values.input.value.dims().len() == 2;
        if of_samples != is_waveform && !is_in_graph {
            let what = if of_samples { "samples" } else { "features" };
            bail!(
                "{} makes {what} of recordings, and `{}` is {}; take the file from the model's page",
                folder.join(first).display(),
                values.name,
                values.input.value.ty
            );
        }
        // Beside token ids a mask is that of the tokens.
        let has_tokens = wanted.iter().any(|(_, input)| input.role == InputRole::TokenIds);
        let mask = match Port::find(wanted, InputRole::EncoderMask)? {
            None if !has_tokens => Port::find(wanted, InputRole::Mask)?,
            mask => mask,
        };
        let is_longer = Port::find(wanted, InputRole::IsLonger)?;
        let own_mask = Port::find(wanted, InputRole::RecordingMask)?;
        // A mask of another role does not say which outputs are there.
        let has_mask = mask.as_ref().is_some_and(|mask| mask.input.role == InputRole::Mask);
        let shrinks = frame_places(folder)?.is_some_and(|places| places > 1);
        // A graph that makes features of a fixed size makes the same of recordings that are filled up.
        let reads_padding = processor.pads_to_longest() && (!has_mask || shrinks);
        let fewest = if of_samples { fewest_samples(folder)? } else { None };
        let processor = match is_in_graph {
            true => processor.samples_alone().map_err(|why| {
                let file = folder.join(first);
                anyhow!(
                    "the graph makes inputs of recordings, and {} says that {why}; the file is of another model",
                    file.display()
                )
            })?,
            false => processor,
        };
        Ok(Self { processor, folder: folder.to_owned(), values, mask, own_mask, is_longer, reads_padding, fewest })
    }

    /// A file as the numbers of a recording.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, is too short for the model, or cannot be processed.
    pub fn read(&self, path: &Path) -> Result<Prepared> {
        self.checked(self.processor.read(path)?, path)
    }

    /// Samples at the [rate](Self::rate) as the numbers of a recording; `path` is what errors call it.
    ///
    /// # Errors
    /// When they are too few for the model, or cannot be processed.
    pub fn prepare(&self, samples: &[f32], path: &Path) -> Result<Prepared> {
        let prepared = self.processor.prepare(samples);
        self.checked(prepared.map_err(|message| SoundError::File { path: path.to_owned(), message })?, path)
    }

    /// The samples per second that it takes.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.processor.rate()
    }

    /// The fewest samples of a recording.
    #[must_use]
    pub fn fewest(&self) -> usize {
        self.fewest.unwrap_or(self.processor.fewest())
    }

    /// Checks that there is a frame.
    fn checked(&self, prepared: Prepared, path: &Path) -> Result<Prepared> {
        match self.fewest {
            Some(fewest) if prepared.places() < fewest => {
                let message = format!(
                    "it is too short: it has {} samples at {} Hz, and the model makes a frame of {fewest} (`conv_kernel` and \
                     `conv_stride` of config.json)",
                    prepared.places(),
                    self.rate()
                );
                Err(SoundError::File { path: path.to_owned(), message }.into())
            }
            _ => Ok(prepared),
        }
    }

    /// Recordings as inputs, a row each.
    ///
    /// # Errors
    /// When they are not what the model takes.
    pub fn inputs(&self, recordings: &[Prepared]) -> Result<Vec<(String, Tensor)>> {
        let Sounds { values, shape, mask, mask_shape, is_longer } =
            self.processor.batch(recordings).map_err(anyhow::Error::msg)?;
        self.check(&shape)?;
        let tensor = |port: &Port, tensor: Option<Tensor>| {
            let tensor = tensor.with_context(|| format!("recordings cannot become `{}`, {}", port.name, port.dtype))?;
            Ok::<_, anyhow::Error>((port.name.clone(), tensor))
        };
        let values = match self.values.dtype {
            DType::F32 => Tensor::new(shape, values),
            dtype if dtype.is_float() => {
                Tensor::from_f64(dtype, shape, &values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
            }
            other => {
                let name = &self.values.name;
                bail!("recordings become floats, and `{name}` is {other}; give it as .npz or .safetensors")
            }
        };
        let mut inputs = vec![tensor(&self.values, values)?];
        let numbers: Vec<f64> = mask.iter().map(|place| *place as f64).collect();
        for port in self.mask.iter().chain(&self.own_mask) {
            inputs.push(tensor(port, Tensor::from_f64(port.dtype, mask_shape.to_vec(), &numbers))?);
        }
        if let Some(port) = &self.is_longer {
            let numbers: Vec<f64> = is_longer.iter().map(|is_longer| f64::from(u8::from(*is_longer))).collect();
            inputs.push(tensor(port, Tensor::from_f64(port.dtype, vec![numbers.len(), 1], &numbers))?);
        }
        Ok(inputs)
    }

    /// Whether recordings of other lengths cannot be in one batch without a change of their outputs: the model would read what fills
    /// them up, or its mask does not say which of its outputs are there.
    pub(crate) fn needs_one_length(&self) -> bool {
        self.reads_padding
    }

    /// Checks what a recording became; the number of rows is checked with all inputs.
    fn check(&self, shape: &[usize]) -> Result<()> {
        let dims = self.values.input.value.dims();
        let is_same = |(dim, size): (&planish_ir::Dim, &usize)| {
            dim.as_constant().is_none_or(|fixed| usize::try_from(fixed) == Ok(*size))
        };
        if dims.len() == shape.len() && dims.iter().zip(shape).skip(1).all(is_same) {
            return Ok(());
        }
        let [file, _] = FILES.map(|file| self.folder.join(file));
        bail!(
            "a recording becomes {:?} by {}, and `{}` is {}; the settings are of another model",
            &shape[1..],
            file.display(),
            self.values.name,
            self.values.input.value.ty
        )
    }
}
