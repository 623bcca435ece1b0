//! Recordings as inputs: what a feature extractor of the transformers library makes of samples, as operators of the graph.
//!
//! The Fourier transform is a convolution with cosines and sines, whose filters have the window in them. Passes leave what is named
//! after the input in float32: it subtracts numbers that are nearly as large.

use planish_ir::ops::{
    BinaryKind, Cast, Concat, Conv, Expand, Gather, Iota, MatMul, Reduce, ReduceKind, Select, Slice, Split, Unary,
    UnaryKind,
};
use planish_ir::{DType, Dim, Origin, Shape, SymbolRole, ValueId, Weight};

use crate::ModelError;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::names;

/// What is done to samples of recordings before they are the numbers of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum SoundSteps {
    /// The samples stay samples.
    Samples {
        /// What is added to the variance, where samples get a mean of 0 and a variance of 1.
        normalize: Option<f64>,
        /// Whether the samples of a recording alone count for that, and not what fills it up: the graph takes a mask.
        masks: bool,
        /// What fills recordings up.
        padding: f64,
    },
    /// Energies of bands in a fixed number of frames.
    Bands(BandSteps),
}

/// From samples to energies of bands, and on.
#[derive(Clone, Debug, PartialEq)]
pub struct BandSteps {
    /// The samples that recordings are cut or filled up to.
    pub samples: usize,
    /// How many of them are mirrored before the first one, and after the last one as far as frames reach.
    pub mirrored: usize,
    /// The number of frames.
    pub frames: usize,
    /// Samples of a frame.
    pub length: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    /// What the samples of a frame are multiplied by: the real parts of all frequencies, and then their imaginary parts,
    /// [2 * frequencies, length].
    pub transform: Vec<f64>,
    /// The weights of frequencies in bands, [bands, frequencies].
    pub bank: Vec<f64>,
    /// The number of bands.
    pub bands: usize,
    /// The least energy.
    pub floor: f64,
    /// What energies become.
    pub form: BandForm,
}

/// What energies of bands become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BandForm {
    /// Logarithms to the base of 10, at most 8 below the largest, plus 4 and divided by 4: [bands, frames].
    Whisper,
    /// Natural logarithms, with zeros after the recording, and all of them less a mean and divided by twice a deviation:
    /// [frames, bands]. The graph takes a mask.
    Kaldi {
        /// The mean and the deviation.
        normalize: Option<[f64; 2]>,
    },
}

/// What says how recordings become numbers, for messages.
const FILE: &str = "preprocessor_config.json";

/// How far below the largest logarithm another one may be, and what brings logarithms to numbers about 0.
const RANGE: f64 = 8.0;
const SHIFT: f64 = 4.0;

/// Adds the input of samples, f32[batch_size, sequence_length], or where recordings are to be processed in the graph, that of
/// recordings and what becomes of them.
pub(crate) fn samples(b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
    match b.sounds.clone().as_deref() {
        None => Ok(of_samples(b, names::WAVEFORM)),
        Some(SoundSteps::Samples { normalize, masks, padding }) => {
            b.has_sounds = true;
            let audio = of_samples(b, names::AUDIO);
            match *normalize {
                None => Ok(audio),
                Some(epsilon) if *masks => normalized_part(b, audio, epsilon, *padding),
                Some(epsilon) => normalized(b, audio, epsilon),
            }
        }
        Some(SoundSteps::Bands(_)) => Err(b.config.error(format!(
            "the model takes samples, and {FILE} makes energies of bands; take the file from the model's page"
        ))),
    }
}

/// Adds an input of features, f32[batch_size, bands, frames] or f32[batch_size, frames, bands], or where recordings are to be
/// processed in the graph, that of recordings and what becomes of them.
pub(crate) fn features(b: &mut Builder<'_>, name: &str, sizes: [Dim; 2]) -> Result<ValueId, ModelError> {
    let Some(steps) = b.sounds.clone() else {
        let [first, second] = sizes;
        return Ok(b.floats(name, names::FEATURES.1, [Dim::symbol(BATCH), first, second]));
    };
    b.has_sounds = true;
    let SoundSteps::Bands(steps) = &*steps else {
        return Err(b.config.error(format!(
            "the model takes features of recordings, and {FILE} makes samples; take the file from the model's page"
        )));
    };
    let (bands, frames) = (dim(steps.bands), dim(steps.frames));
    let given = if steps.form == BandForm::Whisper { [bands, frames] } else { [frames, bands] };
    if given != sizes {
        return Err(b.config.error(format!(
            "the model takes features of {} x {}, and {FILE} makes recordings {} x {}; the file is of another model",
            sizes[0], sizes[1], given[0], given[1]
        )));
    }
    steps.build(b)
}

/// Adds an input of samples, or of as many numbers of another kind.
fn of_samples(b: &mut Builder<'_>, (name, role): names::Named<planish_ir::InputRole>) -> ValueId {
    let input = b.floats(name, role, [BATCH, SEQUENCE].map(Dim::symbol));
    count_samples(b);
    input
}

/// Adds the input that says where recordings are: i64[batch_size, sequence_length].
fn mask(b: &mut Builder<'_>) -> ValueId {
    let input = b.integers(names::AUDIO_MASK, [BATCH, SEQUENCE].map(Dim::symbol));
    count_samples(b);
    input
}

/// Optimum's name of the number of samples is that of tokens.
fn count_samples(b: &mut Builder<'_>) {
    Dim::symbol(SEQUENCE).symbols().for_each(|symbol| {
        b.graph.interface.symbols.insert(symbol.clone(), SymbolRole::Samples);
    });
}

fn dim(size: usize) -> Dim {
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}

/// The name of an operator that processes recordings.
fn at(name: &str) -> String {
    format!("{}.{name}", names::AUDIO.0)
}

fn mean(b: &mut Builder<'_>, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
    b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![1], keep: true }, &at(name))
}

fn sum(b: &mut Builder<'_>, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
    b.emit(Reduce { kind: ReduceKind::Sum, x, axes: vec![1], keep: true }, &at(name))
}

/// Samples divided by their deviation: `centered / sqrt(variance + epsilon)`.
fn scaled(b: &mut Builder<'_>, [centered, variance]: [ValueId; 2], epsilon: f64) -> Result<ValueId, ModelError> {
    let more = b.with_number(BinaryKind::Add, variance, epsilon, &at("more"), FILE)?;
    let deviation = b.emit(Unary { kind: UnaryKind::Sqrt, x: more }, &at("deviation"))?;
    b.binary(BinaryKind::Div, [centered, deviation], &at("normalized"))
}

/// Rows of samples with a mean of 0 and a variance of 1.
fn normalized(b: &mut Builder<'_>, audio: ValueId, epsilon: f64) -> Result<ValueId, ModelError> {
    let own = mean(b, audio, "mean")?;
    let centered = b.binary(BinaryKind::Sub, [audio, own], &at("centered"))?;
    let squares = b.binary(BinaryKind::Mul, [centered, centered], &at("squares"))?;
    let variance = mean(b, squares, "variance")?;
    scaled(b, [centered, variance], epsilon)
}

/// The same of the samples that the mask has, with `padding` in the place of the others.
fn normalized_part(b: &mut Builder<'_>, audio: ValueId, epsilon: f64, padding: f64) -> Result<ValueId, ModelError> {
    let given = mask(b);
    let mask = b.emit(Cast { x: given, to: DType::F32 }, &at("mask"))?;
    let count = sum(b, mask, "count")?;
    let mean_of = |b: &mut Builder<'_>, x: ValueId, name: &str| {
        let sum = sum(b, x, &format!("{name}.sum"))?;
        b.binary(BinaryKind::Div, [sum, count], &at(name))
    };
    let own = b.binary(BinaryKind::Mul, [audio, mask], &at("own"))?;
    let mean = mean_of(b, own, "mean")?;
    let less = b.binary(BinaryKind::Sub, [own, mean], &at("less"))?;
    let centered = b.binary(BinaryKind::Mul, [less, mask], &at("centered"))?;
    let squares = b.binary(BinaryKind::Mul, [centered, centered], &at("squares"))?;
    let variance = mean_of(b, squares, "variance")?;
    let normal = scaled(b, [centered, variance], epsilon)?;
    if padding == 0.0 {
        return Ok(normal);
    }
    let condition = b.emit(Cast { x: given, to: DType::Bool }, &at("is_own"))?;
    let padding = b.number(padding, &at("padding"), FILE);
    b.emit(Select { condition, a: normal, b: padding }, &at("filled"))
}

impl BandSteps {
    /// The features of recordings.
    fn build(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let audio = of_samples(b, names::AUDIO);
        let bands = self.energies(b, audio)?;
        let some = b.with_number(BinaryKind::Max, bands, self.floor, &at("some"), FILE)?;
        let logarithms = b.emit(Unary { kind: UnaryKind::Log, x: some }, &at("logarithms"))?;
        match self.form {
            BandForm::Whisper => {
                let base = std::f64::consts::LN_10.recip();
                let x = b.with_number(BinaryKind::Mul, logarithms, base, &at("of_ten"), FILE)?;
                let largest = Reduce { kind: ReduceKind::Max, x, axes: vec![1, 2], keep: true };
                let largest = b.emit(largest, &at("largest"))?;
                let least = b.with_number(BinaryKind::Sub, largest, RANGE, &at("least"), FILE)?;
                let x = b.binary(BinaryKind::Max, [x, least], &at("within"))?;
                let x = b.with_number(BinaryKind::Add, x, SHIFT, &at("shifted"), FILE)?;
                b.with_number(BinaryKind::Mul, x, SHIFT.recip(), &at("features"), FILE)
            }
            BandForm::Kaldi { normalize } => {
                let x = b.transpose(logarithms, &[0, 2, 1], &at("frames"))?;
                let condition = self.whole_frames(b)?;
                let zero = b.number(0.0, &at("silence"), FILE);
                let x = b.emit(Select { condition, a: x, b: zero }, &at("filled"))?;
                let Some([mean, deviation]) = normalize else { return Ok(x) };
                let x = b.with_number(BinaryKind::Sub, x, mean, &at("centered"), FILE)?;
                b.with_number(BinaryKind::Div, x, 2.0 * deviation, &at("features"), FILE)
            }
        }
    }

    /// The energies of bands in frames: [rows, samples] to [rows, bands, frames].
    fn energies(&self, b: &mut Builder<'_>, audio: ValueId) -> Result<ValueId, ModelError> {
        let rows = Dim::symbol(BATCH);
        let bins = self.transform.len() / self.length.max(1) / 2;
        let x = self.window(b, audio)?;
        let all = b.graph.ty(x).shape[1].clone();
        let x = b.reshape(x, [rows, Dim::constant(1), all], &at("channel"))?;
        let weight = weight(b, "transform", vec![2 * bins, 1, self.length], &self.transform);
        let conv = Conv {
            x,
            weight,
            bias: None,
            strides: vec![self.hop],
            dilations: vec![1],
            pads: vec![0; 2],
            groups: 1,
            sizes: Shape::new([dim(self.frames)]),
        };
        let spectra = b.emit(conv, &at("spectra"))?;
        let parts = b.emit_all(Split { x: spectra, axis: 1, sizes: vec![bins; 2] }, &at("parts"))?;
        let [real, imaginary] = parts[..] else { unreachable!("a split has as many results as sizes") };
        let real = b.binary(BinaryKind::Mul, [real, real], &at("real_squared"))?;
        let imaginary = b.binary(BinaryKind::Mul, [imaginary, imaginary], &at("imaginary_squared"))?;
        let power = b.binary(BinaryKind::Add, [real, imaginary], &at("power"))?;
        let bank = self::weight(b, "bank", vec![self.bands, bins], &self.bank);
        b.emit(MatMul { a: bank, b: power }, &at("bands"))
    }

    /// The samples of all frames: cut or filled up with silence, and mirrored at the ends.
    fn window(&self, b: &mut Builder<'_>, audio: ValueId) -> Result<ValueId, ModelError> {
        let cut = |b: &mut Builder<'_>, x, end, name: &str| {
            b.emit(Slice { x, axis: 1, start: Dim::constant(0), end: dim(end) }, &at(name))
        };
        let zero = weight(b, "zero", vec![1, 1], &[0.0]);
        let shape = Shape::new([Dim::symbol(BATCH), dim(self.samples)]);
        let silence = b.emit(Expand { x: zero, shape }, &at("silent"))?;
        let longer = b.emit(Concat { parts: vec![audio, silence], axis: 1 }, &at("longer"))?;
        let own = cut(b, longer, self.samples, "window")?;
        let reached = (self.frames.saturating_sub(1)) * self.hop + self.length;
        let before: Vec<usize> = (0..self.mirrored).map(|at| self.mirror(self.mirrored - at)).collect();
        let after = reached.saturating_sub(self.mirrored + self.samples);
        let after: Vec<usize> = (0..after).map(|at| self.mirror(self.samples + at)).collect();
        let mut parts = Vec::new();
        for (places, name) in [(before, "before"), (after, "after")] {
            if !places.is_empty() {
                let numbers: Vec<f64> = places.iter().map(|place| *place as f64).collect();
                let indices = Weight::numbers(DType::I64, vec![places.len()], &numbers);
                let indices = indices.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
                let name_of_places = at(&format!("{name}.places"));
                let indices = b.graph.add_weight(&name_of_places, indices, Origin::Config(FILE.into()));
                parts.push(b.emit(Gather { x: own, indices, axis: 1 }, &at(name))?);
            }
            if name == "before" {
                parts.push(own);
            }
        }
        let whole = match parts[..] {
            [own] => own,
            _ => b.emit(Concat { parts, axis: 1 }, &at("mirrored"))?,
        };
        // Frames may leave the last samples out.
        if reached < self.mirrored + self.samples { cut(b, whole, reached, "reached") } else { Ok(whole) }
    }

    /// The sample at a distance from the first one, on either side, where samples are mirrored at both ends.
    fn mirror(&self, distance: usize) -> usize {
        let period = 2 * self.samples.saturating_sub(1).max(1);
        let place = distance % period;
        place.min(period - place).min(self.samples.saturating_sub(1))
    }

    /// Which frames a recording fills: bool[rows, frames, 1].
    fn whole_frames(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        let given = mask(b);
        let rows = Dim::symbol(BATCH);
        let length = sum(b, given, "length")?;
        let frames = b.emit(Iota { dtype: DType::I64, length: dim(self.frames) }, &at("frame"))?;
        let hop = b.graph.add_scalar(&at("hop"), DType::I64, self.hop as f64);
        let starts = b.binary(BinaryKind::Mul, [frames, hop], &at("starts"))?;
        let size = b.graph.add_scalar(&at("size"), DType::I64, self.length as f64);
        let ends = b.binary(BinaryKind::Add, [starts, size], &at("ends"))?;
        let fits = b.binary(BinaryKind::LessOrEqual, [ends, length], &at("fits"))?;
        b.reshape(fits, [rows, dim(self.frames), Dim::constant(1)], &at("is_whole"))
    }
}

/// Numbers as a weight of float32.
fn weight(b: &mut Builder<'_>, name: &str, shape: Vec<usize>, numbers: &[f64]) -> ValueId {
    let weight = Weight::numbers(DType::F32, shape, numbers);
    let weight = weight.unwrap_or_else(|| unreachable!("the shape is that of the numbers"));
    b.graph.add_weight(&at(name), weight, Origin::Config(FILE.into()))
}
