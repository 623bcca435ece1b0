//! The neck and the heads of dense prediction transformers (Ranftl et al. 2021, arXiv:2103.13413): tokens of several layers become
//! feature maps of different sizes, which are fused from the coarsest to the finest.

use planish_ir::{Dim, ValueId};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::resize::{Interpolation, resize};
use crate::layers::transposed;

/// The keys that [`Neck::read`] and [`Neck::chosen`] read.
pub(crate) const KEYS: &[&str] = &["fusion_hidden_size", "head_in_index", "neck_hidden_sizes", "reassemble_factors"];

/// How many times the sides of a feature map a reassembled one has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    Up(usize),
    Same,
    /// By a convolution with this stride.
    Down(usize),
}

impl Factor {
    /// A factor of the transformers library's configuration.
    fn read(number: f64) -> Option<Self> {
        const MOST: f64 = 64.0;
        if number == 1.0 {
            return Some(Self::Same);
        }
        if number > 1.0 {
            return (number <= MOST && number.fract() == 0.0).then_some(Self::Up(number as usize));
        }
        // Python's int() cuts fractions off.
        let stride = (1.0 / number).floor();
        (number > 0.0 && stride <= MOST).then_some(Self::Down(stride as usize))
    }
}

/// The configuration of a neck.
pub(crate) struct Neck {
    /// How large each feature map is, next to the patches.
    pub(crate) factors: Vec<Factor>,
    /// The channels of each feature map before they are fused.
    pub(crate) sizes: Vec<Size>,
    /// The channels of fused feature maps.
    pub(crate) fused: Size,
    /// Whether convolutions of residual units have biases.
    pub(crate) bias: bool,
    /// Whether they have batch norms after them.
    pub(crate) norms: bool,
    /// Whether a fused map has the sides of the next one, and twice its own only at the end.
    pub(crate) follows: bool,
    /// Which of the fused maps the head takes.
    pub(crate) chosen: usize,
}

/// Tokens of a transformer over patches, without those beside patches.
#[derive(Clone)]
pub(crate) struct Patches {
    /// [batch_size, rows * columns, hidden] of each layer that is taken.
    pub(crate) layers: Vec<ValueId>,
    /// Rows and columns.
    pub(crate) sides: [Dim; 2],
    pub(crate) hidden: Size,
}

impl Neck {
    /// Reads a configuration with these default sizes.
    pub(crate) fn read(config: &Config<'_>, sizes: &[usize], fused: usize) -> Result<Self, ModelError> {
        const FACTORS: &str = "reassemble_factors";
        const INDEX: &str = "head_in_index";
        let sizes = config.sizes("neck_hidden_sizes", sizes)?;
        let numbers = config.numbers(FACTORS, &[4.0, 2.0, 1.0, 0.5])?;
        let factors: Option<Vec<Factor>> = numbers.iter().map(|number| Factor::read(*number)).collect();
        let factors = factors.ok_or_else(|| {
            config.error(format!("`{FACTORS}` is {numbers:?}, expected integers, and fractions of 1"))
        })?;
        if factors.len() != sizes.len() {
            let counts = [factors.len(), sizes.len()];
            return Err(config.error(format!(
                "`{FACTORS}` has {} entries, but `neck_hidden_sizes` has {}: each has one for each layer that is taken",
                counts[0], counts[1]
            )));
        }
        let index = config.number(INDEX, -1.0)?;
        let from_start = if index < 0.0 { index + sizes.len() as f64 } else { index };
        let chosen = (0..sizes.len()).find(|at| *at as f64 == from_start);
        let chosen = chosen.ok_or_else(|| {
            config
                .error(format!("`{INDEX}` is {index}, but {} feature maps are fused, one for each entry", sizes.len()))
        })?;
        let fused = config.size("fusion_hidden_size", fused)?;
        Ok(Self { factors, sizes, fused, bias: true, norms: false, follows: false, chosen })
    }

    /// The fused feature map that the head takes: [batch_size, fused, height, width].
    pub(crate) fn apply(&self, b: &mut Builder<'_>, patches: &Patches) -> Result<ValueId, ModelError> {
        if patches.layers.len() != self.sizes.len() {
            return Err(b.config.error(format!(
                "`neck_hidden_sizes` has {} entries, but {} layers of the backbone are taken: each has one",
                self.sizes.len(),
                patches.layers.len()
            )));
        }
        let maps =
            (0..patches.layers.len()).map(|at| self.reassemble(b, patches, at)).collect::<Result<Vec<_>, _>>()?;
        self.fuse(b, &maps)
    }

    /// Fuses feature maps of the channels of `sizes`, from the last to the first.
    pub(crate) fn fuse(&self, b: &mut Builder<'_>, maps: &[ValueId]) -> Result<ValueId, ModelError> {
        let mut features = Vec::new();
        for (at, (map, size)) in maps.iter().zip(&self.sizes).enumerate() {
            let module = format!("neck.convs.{at}");
            features.push(convolution::conv(b, *map, &module, [self.fused, *size], Window::centred(3, 1), false)?);
        }
        features.reverse();
        let mut fused = None;
        for (layer, map) in features.iter().enumerate().take(self.chosen + 1) {
            let next = features.get(layer + 1).filter(|_| self.follows);
            let sides = next.map(|next| sides(b, *next)).transpose()?;
            fused = Some(self.layer(b, [fused, Some(*map)], sides, &format!("neck.fusion_stage.layers.{layer}"))?);
        }
        for layer in self.chosen + 1..features.len() {
            b.tensors.leave(&format!("neck.fusion_stage.layers.{layer}"));
        }
        fused.ok_or_else(|| b.config.error("no feature map is fused"))
    }

    /// The feature map of the tokens of a layer.
    fn reassemble(&self, b: &mut Builder<'_>, patches: &Patches, at: usize) -> Result<ValueId, ModelError> {
        let path = format!("neck.reassemble_stage.layers.{at}");
        let (size, resize) = (self.sizes[at], format!("{path}.resize"));
        let sides = patches.sides.clone();
        let projected =
            transposed::pointwise(b, patches.layers[at], &format!("{path}.projection"), [size, patches.hidden], true)?;
        match self.factors[at] {
            Factor::Up(factor) => transposed::conv_transpose(b, projected, sides, &resize, [size, size], factor),
            Factor::Same => convolution::map(b, projected, sides, size, &resize),
            Factor::Down(stride) => {
                let map = convolution::map(b, projected, sides, size, &format!("{path}.map"))?;
                let window = Window { kernel: 3, stride, padding: 1, dilation: 1 };
                convolution::conv(b, map, &resize, [size, size], window, true)
            }
        }
    }

    /// A layer that adds a feature map to what is fused before.
    fn layer(
        &self,
        b: &mut Builder<'_>,
        [before, map]: [Option<ValueId>; 2],
        next: Option<[Dim; 2]>,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let x = match (before, map) {
            (Some(before), Some(map)) => {
                let sides = sides(b, before)?;
                let map = resize(b, map, sides, Interpolation::Linear, &at("resize"))?;
                let map = self.residual(b, map, &at("residual_layer1"))?;
                b.add(before, map, &at("add"))?
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Err(b.config.error("no feature map is fused")),
        };
        let x = self.residual(b, x, &at("residual_layer2"))?;
        let next = match next {
            Some(next) => next,
            None => multiplied(b, &sides(b, x)?, 2)?,
        };
        let x = resize(b, x, next, Interpolation::LinearCorners, &at("upsample"))?;
        convolution::conv(b, x, &at("projection"), [self.fused; 2], Window::centred(1, 1), true)
    }

    /// A residual unit with activations before its convolutions.
    fn residual(&self, b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let mut inner = x;
        for i in [1, 2] {
            let at = |name: &str| format!("{path}.{name}{i}");
            let active = Activation::RELU.apply(b, inner, &at("activation"))?;
            let (window, channels) = (Window::centred(3, 1), [self.fused; 2]);
            let (module, norm) = (at("convolution"), at("batch_norm"));
            inner = match self.norms {
                true => convolution::normalized_sum(b, active, [&module, &norm], channels, window, self.bias)?,
                false => convolution::conv(b, active, &module, channels, window, self.bias)?,
            };
        }
        b.add(inner, x, &format!("{path}.add"))
    }
}

/// Height and width of a feature map.
pub(crate) fn sides(b: &Builder<'_>, x: ValueId) -> Result<[Dim; 2], ModelError> {
    let [_, _, height, width] = convolution::dims(b, x)?;
    Ok([height, width])
}

/// Sides times a number.
pub(crate) fn multiplied(b: &Builder<'_>, sides: &[Dim; 2], by: usize) -> Result<[Dim; 2], ModelError> {
    let by = Dim::constant(i64::try_from(by).unwrap_or(i64::MAX));
    match [sides[0].checked_mul(&by), sides[1].checked_mul(&by)] {
        [Some(height), Some(width)] => Ok([height, width]),
        _ => Err(b.config.error("feature maps have more places than 64 bits count")),
    }
}

/// Half of the channels of fused feature maps, which heads have inside.
pub(crate) fn half(fused: Size) -> Size {
    Size::derived(fused.value / 2, "fusion_hidden_size / 2")
}

/// A map of one channel without it: [batch_size, height, width].
pub(crate) fn squeezed(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let [batch, _, height, width] = convolution::dims(b, x)?;
    b.reshape(x, [batch, height, width], module)
}
