//! Convolutions, pools and norms of feature maps [batch_size, channels, height, width], whose height and width may be of
//! any size.

use planish_ir::ops::{
    BinaryKind, Conv, Foreign, InnerOperators, Real, Reduce, ReduceKind, Results, Setting, Settings, Text,
};
use planish_ir::{DType, Dim, Origin, Shape, TensorType, Type, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::pictures;
use crate::names;

/// What `torch.nn.BatchNorm2d` adds to the variance.
const BATCH_NORM_EPS: f64 = 1e-5;

/// What `torch.nn.GroupNorm` adds to the variance.
const GROUP_NORM_EPS: f64 = 1e-5;

/// The version of ONNX's operators that pass through.
const OPSET: usize = 13;

/// A square window that moves over height and width.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    /// Elements on each side of an axis that are taken for 0, or by a pool for the smallest number.
    pub(crate) padding: usize,
    /// The distance between what it covers.
    pub(crate) dilation: usize,
}

impl Window {
    /// A window of an odd size whose centre is at each `stride`-th element.
    pub(crate) fn centred(kernel: usize, stride: usize) -> Self {
        Self { kernel, stride, padding: kernel / 2, dilation: 1 }
    }

    /// A window of an odd size whose centre is at each element, and which covers each `dilation`-th one.
    pub(crate) fn dilated(kernel: usize, dilation: usize) -> Self {
        Self { padding: kernel / 2 * dilation, dilation, ..Self::centred(kernel, 1) }
    }

    /// Windows side by side.
    pub(crate) fn patches(kernel: usize) -> Self {
        Self { kernel, stride: kernel, padding: 0, dilation: 1 }
    }

    /// How often it fits an axis. Where this has no polynomial form, it is a symbol whose name says how it comes about, so
    /// that layers side by side have the same one.
    fn places(self, size: &Dim) -> Dim {
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let room = signed(2 * self.padding) - signed(self.dilation * (self.kernel - 1) + 1);
        let stride = Dim::constant(signed(self.stride));
        let spelled: String = size.to_string().chars().filter(|c| !c.is_whitespace()).map(spelled).collect();
        let rest = if room < 0 { format!("less_{}", -room) } else { format!("more_{room}") };
        let symbol = || match room {
            -1 => Dim::symbol(&format!("{spelled}_{}", self.stride)),
            _ => Dim::symbol(&format!("{spelled}_{rest}_{}", self.stride)),
        };
        let all = size.checked_add(&Dim::constant(room));
        let steps = all.and_then(|all| match all.as_constant() {
            Some(all) => Some(Dim::constant(all.div_euclid(signed(self.stride)))),
            None => all.exact_div(&stride),
        });
        steps.and_then(|steps| steps.checked_add(&Dim::constant(1))).unwrap_or_else(symbol)
    }
}

/// A character of a size in the name of a symbol.
fn spelled(c: char) -> char {
    match c {
        '+' => 'p',
        '-' => 'm',
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    }
}

/// A size as a dimension.
pub(crate) fn dim(size: Size) -> Dim {
    Dim::constant(size.signed())
}

/// Images of any height and width: the input `pixel_values`, f32[batch_size, channels, height, width].
pub(crate) fn pixels(b: &mut Builder<'_>, channels: Size) -> Result<ValueId, ModelError> {
    pictures::input(b, [dim(channels), Dim::symbol(names::HEIGHT), Dim::symbol(names::WIDTH)])
}

/// The dimensions of a feature map.
pub(crate) fn dims(b: &Builder<'_>, x: ValueId) -> Result<[Dim; 4], ModelError> {
    let shape = b.graph.ty(x).shape.clone();
    let dims: Vec<Dim> = shape.iter().cloned().collect();
    dims.try_into().map_err(|_| b.config.error(format!("a feature map has the shape {shape}")))
}

/// A convolution with its weight and perhaps its bias, which may be those of a norm in it.
fn emit(
    b: &mut Builder<'_>,
    x: ValueId,
    [weight, bias]: [Option<ValueId>; 2],
    window: Window,
    groups: usize,
    module: &str,
) -> Result<ValueId, ModelError> {
    let [_, _, height, width] = dims(b, x)?;
    let Some(weight) = weight else { return Err(b.tensors.missing(&[module])) };
    let conv = Conv {
        x,
        weight,
        bias,
        strides: vec![window.stride; 2],
        dilations: vec![window.dilation; 2],
        pads: vec![window.padding; 4],
        groups,
        sizes: Shape::new([window.places(&height), window.places(&width)]),
    };
    b.emit(conv, module)
}

/// The shape of filters.
pub(super) fn filters([out, inner]: [Size; 2], window: Window, groups: usize) -> [Size; 4] {
    let kernel = Size::derived(window.kernel, "the size of a kernel");
    [out, Size::derived(inner.value / groups.max(1), inner.key), kernel, kernel]
}

/// `torch.nn.Conv2d` of [out, in] channels, with or without bias.
pub(crate) fn conv(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: [Size; 2],
    window: Window,
    bias: bool,
) -> Result<ValueId, ModelError> {
    let (weight, bias) = b.weight_and_bias(module, &filters(channels, window, 1), bias)?;
    emit(b, x, [Some(weight), bias], window, 1, module)
}

/// The same with a filter for each channel.
pub(crate) fn depthwise(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: Size,
    window: Window,
) -> Result<ValueId, ModelError> {
    let groups = channels.value;
    let weight = b.weight(&[&format!("{module}.weight")], &filters([channels; 2], window, groups))?;
    let bias = b.weight(&[&format!("{module}.bias")], &[channels])?;
    emit(b, x, [Some(weight), Some(bias)], window, groups, module)
}

/// What `torch.nn.BatchNorm2d` multiplies each channel by, and what it adds, after a convolution with the bias of a module.
pub(crate) fn affine(
    b: &mut Builder<'_>,
    biased: Option<&str>,
    norm: &str,
    out: Size,
) -> Result<[Vec<f64>; 2], ModelError> {
    let mut tensor = |name: &str| -> Result<Vec<f64>, ModelError> {
        let (weight, _) = b.tensors.take(&[name], &[out])?;
        weight.read_numbers().map_err(|error| b.config.error(format!("tensor `{name}`: {error}")))
    };
    let own = biased.map_or_else(|| Ok(vec![0.0; out.value]), |module| tensor(&format!("{module}.bias")))?;
    let mut vector = |name: &str| tensor(&format!("{norm}.{name}"));
    let (factor, shift) = (vector("weight")?, vector("bias")?);
    let (mean, variance) = (vector("running_mean")?, vector("running_var")?);
    let factors: Vec<f64> = factor.iter().zip(&variance).map(|(f, v)| f / (v + BATCH_NORM_EPS).sqrt()).collect();
    let shifts: Vec<f64> = (0..out.value).map(|i| shift[i] + (own[i] - mean[i]) * factors[i]).collect();
    let overflows = |number: f64| !(number as f32).is_finite();
    if let Some(at) = (0..out.value).find(|at| overflows(factors[*at]) || overflows(shifts[*at])) {
        let [weight, bias, mean, variance] = [&factor, &shift, &mean, &variance].map(|vector| vector[at]);
        return Err(b.config.error(format!(
            "the norm `{norm}`: no float32 has what channel {at} is multiplied by, or what is added to it; its weight is {weight}, its \
             bias {bias}, its mean {mean} and its variance {variance}"
        )));
    }
    Ok([factors, shifts])
}

/// `torch.nn.Conv2d` without bias of [out, in] channels, with `torch.nn.BatchNorm2d` after it: one convolution with the
/// norm's statistics in filters and bias.
pub(crate) fn normalized(
    b: &mut Builder<'_>,
    x: ValueId,
    modules: [&str; 2],
    channels: [Size; 2],
    window: Window,
) -> Result<ValueId, ModelError> {
    normalized_sum(b, x, modules, channels, window, false)
}

/// The same with or without bias of the convolution.
pub(crate) fn normalized_sum(
    b: &mut Builder<'_>,
    x: ValueId,
    [module, norm]: [&str; 2],
    channels: [Size; 2],
    window: Window,
    bias: bool,
) -> Result<ValueId, ModelError> {
    normalized_in_groups(b, x, [module, norm], channels, window, (1, bias))
}

/// `torch.nn.Conv2d` without bias and with a filter for each channel, with `torch.nn.BatchNorm2d` after it.
pub(crate) fn normalized_depthwise(
    b: &mut Builder<'_>,
    x: ValueId,
    modules: [&str; 2],
    channels: Size,
    window: Window,
) -> Result<ValueId, ModelError> {
    normalized_in_groups(b, x, modules, [channels; 2], window, (channels.value, false))
}

/// A convolution of so many groups, with or without bias, and the norm after it.
fn normalized_in_groups(
    b: &mut Builder<'_>,
    x: ValueId,
    [module, norm]: [&str; 2],
    channels: [Size; 2],
    window: Window,
    (groups, bias): (usize, bool),
) -> Result<ValueId, ModelError> {
    let out = channels[0];
    let (weight, origin) = b.tensors.take(&[&format!("{module}.weight")], &filters(channels, window, groups))?;
    let own = bias.then_some(module);
    let [factors, shifts] = affine(b, own, norm, out)?;
    let numbers = |values: &[f64]| Weight::numbers(DType::F32, vec![out.value], values);
    let scaled = numbers(&factors).and_then(|factors| weight.scale(0, &factors)).zip(numbers(&shifts));
    let Some((weight, shifts)) = scaled else { unreachable!("there is a number for each filter") };
    let weight = b.graph.add_weight(&format!("{module}.weight"), weight, origin);
    let bias = b.graph.add_weight(&format!("{norm}.bias"), shifts, Origin::Module(norm.into()));
    emit(b, x, [Some(weight), Some(bias)], window, groups, module)
}

/// An operator of ONNX on a feature map, whose result has another height and width.
pub(crate) fn foreign(
    b: &mut Builder<'_>,
    op: &str,
    inputs: Vec<Option<ValueId>>,
    settings: &[(&str, Setting)],
    shape: Shape,
    module: &str,
) -> Result<ValueId, ModelError> {
    foreign_since(b, op, OPSET, inputs, settings, shape, module)
}

/// The same of another version.
pub(super) fn foreign_since(
    b: &mut Builder<'_>,
    op: &str,
    version: usize,
    inputs: Vec<Option<ValueId>>,
    settings: &[(&str, Setting)],
    shape: Shape,
    module: &str,
) -> Result<ValueId, ModelError> {
    let foreign = Foreign {
        inputs,
        captured: Vec::new(),
        domain: Text(Foreign::STANDARD.to_owned()),
        op: Text(op.to_owned()),
        version,
        settings: Settings(settings.iter().map(|(name, setting)| ((*name).to_owned(), setting.clone())).collect()),
        captures: Vec::new(),
        inner: InnerOperators::default(),
        results: Results(vec![Some(Type::Tensor(TensorType::new(DType::F32, shape)))]),
    };
    b.emit(foreign, module)
}

/// `torch.nn.MaxPool2d`.
pub(crate) fn max_pool(b: &mut Builder<'_>, x: ValueId, window: Window, module: &str) -> Result<ValueId, ModelError> {
    let [batch, channels, height, width] = dims(b, x)?;
    let shape = Shape::new([batch, channels, window.places(&height), window.places(&width)]);
    let ints = |value: usize, count: usize| Setting::Ints(vec![i64::try_from(value).unwrap_or(i64::MAX); count]);
    let settings = [
        ("kernel_shape", ints(window.kernel, 2)),
        ("pads", ints(window.padding, 4)),
        ("strides", ints(window.stride, 2)),
    ];
    foreign(b, "MaxPool", vec![Some(x)], &settings, shape, module)
}

/// `torch.nn.AvgPool2d` of windows of two by two side by side, of which those at the end may be smaller.
pub(crate) fn average_pool(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let [batch, channels, height, width] = dims(b, x)?;
    // As many as a centred window of stride 2 has.
    let window = Window::centred(3, 2);
    let shape = Shape::new([batch, channels, window.places(&height), window.places(&width)]);
    let settings = [
        ("ceil_mode", Setting::Int(1)),
        ("kernel_shape", Setting::Ints(vec![2; 2])),
        ("strides", Setting::Ints(vec![2; 2])),
    ];
    foreign(b, "AveragePool", vec![Some(x)], &settings, shape, module)
}

/// Rows of each image by their numbers: of [batch_size, rows, features], by [batch_size, count, 1].
pub(crate) fn gather_rows(b: &mut Builder<'_>, x: ValueId, rows: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let (from, by) = (b.graph.ty(x).shape.clone(), b.graph.ty(rows).shape.clone());
    let shape = Shape::new([from[0].clone(), by[1].clone(), from[2].clone()]);
    foreign(b, "GatherND", vec![Some(x), Some(rows)], &[("batch_dims", Setting::Int(1))], shape, module)
}

/// `torch.nn.GroupNorm` of so many groups.
pub(crate) fn group_norm(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    channels: Size,
    groups: usize,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let [batch, _, height, width] = dims(b, x)?;
    let inner = Dim::constant(i64::try_from(channels.value / groups.max(1)).unwrap_or(i64::MAX));
    let places = height.checked_mul(&width).and_then(|places| places.checked_mul(&inner));
    let Some(places) = places.filter(|_| channels.value.is_multiple_of(groups.max(1))) else {
        return Err(b.config.error(format!("{channels} channels are not those of {groups} groups of a norm")));
    };
    let count = Size::derived(groups, "the groups of a norm");
    let in_groups = b.reshape(x, [batch.clone(), dim(count), places], &at("groups"))?;
    let (one, zero) = (b.ones(&at("one"), count), b.zeros(&at("zero"), count));
    let normal = instance_norm(b, [in_groups, one, zero], module)?;
    let normal = b.reshape(normal, [batch, dim(channels), height, width], &at("map"))?;
    let mut vector = |name: &str| -> Result<ValueId, ModelError> {
        let weight = b.weight(&[&at(name)], &[channels])?;
        b.reshape(weight, [dim(channels), Dim::constant(1), Dim::constant(1)], &at(&format!("{name}.by_channel")))
    };
    let (weight, bias) = (vector("weight")?, vector("bias")?);
    let scaled = b.binary(BinaryKind::Mul, [normal, weight], &at("mul"))?;
    b.add(scaled, bias, &at("add"))
}

/// Channels of [batch_size, channels, ..], each with a mean of 0 and a variance of 1, times a factor and plus a shift of its own: what
/// `torch.nn.GroupNorm` of as many groups as channels computes.
pub(crate) fn instance_norm(
    b: &mut Builder<'_>,
    [x, factors, shifts]: [ValueId; 3],
    module: &str,
) -> Result<ValueId, ModelError> {
    let shape = b.graph.ty(x).shape.clone();
    let settings = [("epsilon", Setting::Float(Real(GROUP_NORM_EPS)))];
    let inputs = vec![Some(x), Some(factors), Some(shifts)];
    foreign(b, "InstanceNormalization", inputs, &settings, shape, module)
}

/// The mean of each channel: [batch_size, channels], or with `keep` [batch_size, channels, 1, 1].
pub(crate) fn mean(b: &mut Builder<'_>, x: ValueId, keep: bool, module: &str) -> Result<ValueId, ModelError> {
    b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![2, 3], keep }, module)
}

/// The places of a feature map as tokens, row by row: [batch_size, height * width, channels].
pub(crate) fn tokens(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let [batch, channels, height, width] = dims(b, x)?;
    let Some(count) = height.checked_mul(&width) else {
        return Err(b.config.error("images have more places than 64 bits count"));
    };
    let rows = b.transpose(x, &[0, 2, 3, 1], &format!("{module}.channels_last"))?;
    b.reshape(rows, [batch, count, channels], module)
}

/// The feature map whose places are tokens: the reverse of [`tokens`].
pub(crate) fn map(
    b: &mut Builder<'_>,
    x: ValueId,
    [height, width]: [Dim; 2],
    channels: Size,
    module: &str,
) -> Result<ValueId, ModelError> {
    let rows = b.reshape(x, [Dim::symbol(BATCH), height, width, dim(channels)], &format!("{module}.channels_last"))?;
    b.transpose(rows, &[0, 3, 1, 2], module)
}
