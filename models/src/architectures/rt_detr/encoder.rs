//! The hybrid encoder: a transformer over the places of the smallest map, then convolutions over maps from the smallest to the
//! largest and back.

use planish_ir::ops::{BinaryKind, Concat, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use super::Settings;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::convolution::{self, Window};
use crate::layers::detection::{self, Along};
use crate::layers::resize::{Interpolation, resize};

impl Settings {
    /// Maps of [batch_size, encoder_hidden_dim, height, width] of those of the backbone.
    pub(super) fn encode(&self, b: &mut Builder<'_>, maps: Vec<ValueId>) -> Result<Vec<ValueId>, ModelError> {
        let hidden = self.encoder.hidden;
        let mut own = Vec::new();
        for (level, (map, channels)) in maps.into_iter().zip(&self.maps).enumerate() {
            let modules = [0, 1].map(|part| format!("encoder_input_proj.{level}.{part}"));
            let window = Window::patches(1);
            own.push(convolution::normalized(b, map, [&modules[0], &modules[1]], [hidden, *channels], window)?);
        }
        for (number, &level) in self.attended.iter().enumerate() {
            if self.encoder.layers > 0 {
                own[level] = self.attend(b, own[level], number)?;
            }
        }
        let last = own.len() - 1;
        // From the smallest map on; each gives what the next larger one is joined with.
        let mut larger = vec![own[last]];
        for step in 0..last {
            let path = format!("encoder.lateral_convs.{step}");
            let activation = if self.fine.is_some() { None } else { Some(self.activation) };
            let top = self.layer(b, larger[step], &path, [hidden; 2], Window::centred(1, 1), activation)?;
            larger[step] = top;
            let map = own[last - step - 1];
            let [_, _, height, width] = convolution::dims(b, map)?;
            let top = resize(b, top, [height, width], Interpolation::Nearest, &format!("{path}.resize"))?;
            larger.push(self.join(b, [top, map], &format!("encoder.fpn_blocks.{step}"))?);
        }
        larger.reverse();
        let mut smaller = vec![larger[0]];
        for step in 0..last {
            let path = format!("encoder.downsample_convs.{step}");
            let low = match self.fine {
                Some(_) => self.halve(b, smaller[step], &path)?,
                None => {
                    self.layer(b, smaller[step], &path, [hidden; 2], Window::centred(3, 2), Some(self.activation))?
                }
            };
            smaller.push(self.join(b, [low, larger[step + 1]], &format!("encoder.pan_blocks.{step}"))?);
        }
        Ok(smaller)
    }

    /// The layers of the transformer over the places of a map.
    fn attend(&self, b: &mut Builder<'_>, map: ValueId, number: usize) -> Result<ValueId, ModelError> {
        let (half, path) = (&self.encoder, format!("encoder.encoder.{number}"));
        let [_, _, height, width] = convolution::dims(b, map)?;
        let sides = [height, width];
        let positions = if self.has_positions { Some(self.positions(b, &sides, &path)?) } else { None };
        let mut x = convolution::tokens(b, map, &path)?;
        for layer in 0..half.layers {
            let path = format!("{path}.layers.{layer}");
            let [first, last] = ["self_attn_layer_norm", "final_layer_norm"].map(|name| format!("{path}.{name}"));
            let norm = |b: &mut Builder<'_>, x: ValueId, name: &str| b.layer_norm(x, name, half.hidden, self.eps);
            let normal = if self.norms_first { norm(b, x, &first)? } else { x };
            let attended = half.attention(b, normal, positions, &format!("{path}.self_attn"))?;
            x = b.add(x, attended, &format!("{path}.self_attn.add"))?;
            // Where norms come first, it is the normal states that the feed-forward is added to.
            x = norm(b, x, if self.norms_first { &last } else { &first })?;
            let made = half.feed_forward(b, x, &path)?;
            x = b.add(x, made, &format!("{path}.add"))?;
            if !self.norms_first {
                x = norm(b, x, &last)?;
            }
        }
        convolution::map(b, x, sides, half.hidden, &format!("{path}.map"))
    }

    /// The positions of the places of a map: sine and cosine of rows, then of columns.
    fn positions(&self, b: &mut Builder<'_>, sides: &[Dim; 2], path: &str) -> Result<ValueId, ModelError> {
        const KEY: &str = "positional_encoding_temperature";
        let count = self.encoder.hidden.value / 4;
        let waves: Vec<f64> = (0..count).map(|at| self.temperature.powf(-(at as f64) / count as f64)).collect();
        let waves = Weight::numbers(DType::F32, vec![count], &waves);
        let waves = waves.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
        let waves = b.graph.add_weight(&format!("{path}.waves"), waves, Origin::Config(KEY.into()));
        let mut along = |side: &Dim, name: &str| {
            let at = |part: &str| format!("{path}.{name}.{part}");
            let places = detection::numbers(b, side, &at("side"))?;
            let places = b.reshape(places, [side.clone(), Dim::constant(1)], &at("column"))?;
            let turns = b.binary(BinaryKind::Mul, [places, waves], &at("turns"))?;
            let sin = b.emit(Unary { kind: UnaryKind::Sin, x: turns }, &at("sin"))?;
            let cos = b.emit(Unary { kind: UnaryKind::Cos, x: turns }, &at("cos"))?;
            b.emit(Concat { parts: vec![sin, cos], axis: 1 }, &at("both"))
        };
        let parts = [Along::Rows(along(&sides[0], "rows")?), Along::Columns(along(&sides[1], "columns")?)];
        let half = Size::derived(2 * count, "encoder_hidden_dim / 2");
        detection::positions(b, parts, sides, half, &format!("{path}.position_embedding"))
    }

    /// A convolution with its norm, and perhaps an activation.
    pub(super) fn layer(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        path: &str,
        channels: [Size; 2],
        window: Window,
        activation: Option<Activation>,
    ) -> Result<ValueId, ModelError> {
        let [conv, norm] = ["conv", "norm"].map(|name| format!("{path}.{name}"));
        let x = convolution::normalized(b, x, [&conv, &norm], channels, window)?;
        match activation {
            Some(activation) => activation.apply(b, x, &format!("{path}.activation")),
            None => Ok(x),
        }
    }

    /// Two maps as one: blocks of convolutions of both, added to another convolution of both.
    fn join(&self, b: &mut Builder<'_>, maps: [ValueId; 2], path: &str) -> Result<ValueId, ModelError> {
        let (hidden, narrow) = (self.encoder.hidden, self.narrow);
        let both = Size::derived(2 * hidden.value, "2 * encoder_hidden_dim");
        let x = b.emit(Concat { parts: maps.to_vec(), axis: 1 }, &format!("{path}.concat"))?;
        if self.fine.is_some() {
            return self.aggregate(b, x, both, path);
        }
        let sum = self.blocks(b, x, both, path)?;
        if narrow.value == hidden.value {
            return Ok(sum);
        }
        self.layer(b, sum, &format!("{path}.conv3"), [hidden, narrow], Window::centred(1, 1), Some(self.activation))
    }

    /// Blocks of two convolutions side by side in a row, added to another convolution of the same map, which has `inner` channels.
    pub(super) fn blocks(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        inner: Size,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let (narrow, point) = (self.narrow, Window::centred(1, 1));
        let mut first = self.layer(b, x, &format!("{path}.conv1"), [narrow, inner], point, Some(self.activation))?;
        for block in 0..self.blocks {
            let path = format!("{path}.bottlenecks.{block}");
            let wide = self.layer(b, first, &format!("{path}.conv1"), [narrow; 2], Window::centred(3, 1), None)?;
            let own = self.layer(b, first, &format!("{path}.conv2"), [narrow; 2], point, None)?;
            let sum = b.add(wide, own, &format!("{path}.add"))?;
            first = self.activation.apply(b, sum, &format!("{path}.activation"))?;
        }
        let second = self.layer(b, x, &format!("{path}.conv2"), [narrow, inner], point, Some(self.activation))?;
        b.add(first, second, &format!("{path}.add"))
    }
}
