//! D-FINE (Peng et al. 2024, arXiv:2410.13842), as `transformers/models/d_fine` has it: RT-DETR v2 on a HGNetV2 whose layers of the
//! decoder make distributions of how far the sides of a box move, each layer those of the one before it.

use planish_ir::ops::{BinaryKind, Concat, Flag, Reduce, ReduceKind, Slice, Softmax, Split, TopK};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};
use serde_json::Value;

use super::decoder::{BOX, box_size, head, logits_of, sigmoid};
use super::{IRRELEVANT, KEYS, LEARNED, OF_TIMM, Settings, UNUSED, backbone};
use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::{detection, patches};
use crate::{ModelError, Task, names};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "d_fine",
    class_prefix: "DFineFor",
    renamed: &[
        ("out_proj", "o_proj"),
        (".fc1", ".mlp.layers.0"),
        (".fc2", ".mlp.layers.1"),
        ("encoder.encoder.", "encoder.aifi."),
    ],
    keys: &[
        KEYS,
        &[
            "decoder_offset_scale",
            "depth_mult",
            "eval_idx",
            "lqe_hidden_dim",
            "lqe_layers",
            "max_num_bins",
            "reg_scale",
            "top_prob_values",
            "up",
        ],
    ],
    // The other one takes the nearest place in a way of its own.
    only: &[LEARNED, OF_TIMM[0], OF_TIMM[1], OF_TIMM[2], Only::Text("decoder_method", "default")],
    irrelevant_keys: FINE_IRRELEVANT,
    unused_tensors: FINE_UNUSED,
    build,
    ..super::ARCHITECTURE
};

/// Those of RT-DETR and more: what others say, layers after the one that gives the boxes, and losses.
const FINE_IRRELEVANT: &[&str] =
    &joined::<{ IRRELEVANT.len() + 4 }>(IRRELEVANT, &["head_dim", "layer_scale", "weight_loss_ddf", "weight_loss_fgl"]);

/// Those of RT-DETR, and how exact boxes of layers but the last one are.
const FINE_UNUSED: &[&str] = &joined::<{ UNUSED.len() + 1 }>(UNUSED, &["decoder.lqe_layers."]);

/// Two lists as one of `N` entries.
const fn joined<const N: usize>(first: &'static [&'static str], second: &'static [&'static str]) -> [&'static str; N] {
    let mut all = [""; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    all
}

/// The positions of queries are at most this far from 0.
pub(super) const FARTHEST: f64 = 10.0;

/// What states are at most before the last norm of a layer: the largest number of float16.
pub(super) const LARGEST: f64 = 65_504.0;

/// What `torch.nn.LayerNorm` adds to the variance.
const LAYER_NORM_EPS: f64 = 1e-5;

/// The layers of the heads that give boxes.
const LAYERS: usize = 3;

/// What D-FINE has besides RT-DETR's settings.
pub(super) struct Fine {
    /// How many numbers the distribution of a side has, less 1.
    bins: usize,
    /// What widths and heights are divided by, and what the farthest move of a side is, in checkpoints that do not store them.
    scale: f64,
    up: f64,
    /// How many of the largest numbers of a distribution say how exact it is, and the layers that make of them what they say.
    top: usize,
    exact: Size,
    exact_layers: usize,
}

impl Fine {
    fn read(config: &Config<'_>, layers: usize) -> Result<Self, ModelError> {
        let index = config.number("eval_idx", -1.0)?;
        if index != -1.0 && index != layers as f64 - 1.0 {
            return Err(config.error(format!(
                "`eval_idx` is {index}: the boxes of the last layer are supported, -1 or {}; the transformers library runs no model \
                 with another one",
                layers - 1
            )));
        }
        let bins = config.size("max_num_bins", 32)?;
        if bins.value < 4 || !bins.value.is_multiple_of(2) {
            return Err(config.error(format!("{bins} is not an even number from 4 on")));
        }
        let top = config.size("top_prob_values", 4)?;
        if top.value > bins.value + 1 {
            return Err(config.error(format!("{top}, but distributions of {bins} have {} numbers", bins.value + 1)));
        }
        Ok(Self {
            bins: bins.value,
            scale: config.number("reg_scale", 4.0)?,
            up: config.number("up", 0.5)?,
            top: top.value,
            exact: config.size("lqe_hidden_dim", 64)?,
            exact_layers: config.size("lqe_layers", 2)?.value,
        })
    }

    /// How far each number of a distribution moves a side, [bins + 1], and what widths and heights are divided by.
    fn moves(&self, b: &mut Builder<'_>) -> Result<(ValueId, f64), ModelError> {
        let mut stored = |name: &str, default: f64| -> Result<f64, ModelError> {
            if !b.tensors.contains(name) {
                return Ok(default.abs());
            }
            let (weight, _) = b.tensors.take(&[name], &[Size::derived(1, "a number")])?;
            let numbers = weight.read_numbers();
            let numbers = numbers.map_err(|error| b.config.error(format!("tensor `{name}`: {error}")))?;
            Ok(numbers.first().map_or(default, |number| number.abs()))
        };
        let (scale, up) = (stored("decoder.reg_scale", self.scale)?, stored("decoder.up", self.up)?);
        let bound = up * scale;
        let half = self.bins / 2;
        let step = (bound + 1.0).powf(1.0 / (half as f64 - 1.0));
        let inner = (1..half).map(|at| step.powf(at as f64) - 1.0).collect::<Vec<_>>();
        let mut moves: Vec<f64> = vec![-2.0 * bound];
        moves.extend(inner.iter().rev().map(|number| -number));
        moves.push(0.0);
        moves.extend(inner);
        moves.push(2.0 * bound);
        if scale == 0.0 || !(1.0 / scale as f32).is_finite() || !(2.0 * bound as f32).is_finite() {
            let names = "`decoder.reg_scale` and `decoder.up` (or `reg_scale` and `up` of the configuration)";
            return Err(b.config.error(format!("{names} are {scale} and {up}, with which boxes are not finite")));
        }
        let moves = Weight::numbers(DType::F32, vec![self.bins + 1], &moves);
        let moves = moves.unwrap_or_else(|| unreachable!("there is a number for each bin, and one more"));
        Ok((b.graph.add_weight("decoder.moves", moves, Origin::Module("decoder".into())), scale))
    }
}

/// How many samples each head takes of each map.
pub(super) fn points(config: &Config<'_>, levels: Size) -> Result<Vec<usize>, ModelError> {
    const KEY: &str = "decoder_n_points";
    if !config.get(KEY).is_some_and(Value::is_array) {
        return super::same_points(config, levels);
    }
    let points = config.sizes(KEY, &[])?;
    match points.len() == levels.value {
        true => Ok(points.into_iter().map(|count| count.value).collect()),
        false => Err(config.error(format!("`{KEY}` has {} entries, but {levels}", points.len()))),
    }
}

/// The most blocks of a stage of the encoder.
const MOST_BLOCKS: usize = 1 << 10;

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let config = b.config;
    let read = Settings::read(config, true)?;
    let fine = Fine::read(config, read.decoder.layers)?;
    let offset_scale = config.not_negative("decoder_offset_scale", 0.5)?;
    let depth = config.not_negative("depth_mult", 1.0)?;
    let blocks = (3.0 * depth).round_ties_even() as usize;
    if blocks > MOST_BLOCKS {
        return Err(config.error(format!(
            "`depth_mult` is {depth}: stages would have {blocks} blocks, and {MOST_BLOCKS} are supported"
        )));
    }
    let (hgnet, taken, maps) = backbone::read_hgnet(config, read.maps.len())?;
    let s = Settings { fine: Some(fine), shares_heads: true, offset_scale, blocks, maps, ..read };
    let maps = backbone::of_hgnet(b, &hgnet, &taken)?;
    let maps = s.encode(b, maps)?;
    s.decode_finely(b, &maps)?;
    Ok(Properties::default())
}

/// A value from `-most` to `most`.
pub(super) fn clamp(b: &mut Builder<'_>, x: ValueId, most: f64, path: &str) -> Result<ValueId, ModelError> {
    let x = b.with_number(BinaryKind::Max, x, -most, &format!("{path}.not_below"), "model_type")?;
    b.with_number(BinaryKind::Min, x, most, &format!("{path}.not_above"), "model_type")
}

/// Two states as one: the norm of their sum, of which gates say how much of each counts.
pub(super) fn gate(b: &mut Builder<'_>, states: [ValueId; 2], hidden: Size, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let both = Size::derived(2 * hidden.value, "2 * d_model");
    let joined = b.emit(Concat { parts: states.to_vec(), axis: 2 }, &at("concat"))?;
    let gates = b.linear(joined, &at("gate"), both, both)?;
    let gates = sigmoid(b, gates, &at("gate"))?;
    let gates = b.emit_all(Split { x: gates, axis: 2, sizes: vec![hidden.value; 2] }, &at("gates"))?;
    let [first, second] = gates[..] else { unreachable!("a split has as many results as sizes") };
    let first = b.binary(BinaryKind::Mul, [first, states[0]], &at("first"))?;
    let second = b.binary(BinaryKind::Mul, [second, states[1]], &at("second"))?;
    let sum = b.add(first, second, &at("add"))?;
    b.layer_norm(sum, &at("norm"), hidden, LAYER_NORM_EPS)
}

impl Settings {
    /// A map of half the height and width.
    pub(super) fn halve(&self, b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let hidden = self.encoder.hidden;
        let x = self.layer(b, x, &format!("{path}.conv1"), [hidden; 2], Window::centred(1, 1), None)?;
        let [conv, norm] = ["conv", "norm"].map(|name| format!("{path}.conv2.{name}"));
        convolution::normalized_depthwise(b, x, [&conv, &norm], hidden, Window::centred(3, 2))
    }

    /// A map of `both` channels as one of the encoder's: halves of them, and what blocks make of the second half in turn.
    pub(super) fn aggregate(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        both: Size,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let (hidden, narrow, active) = (self.encoder.hidden, self.narrow, Some(Activation::SILU));
        let at = |name: &str| format!("{path}.{name}");
        let (point, window) = (Window::centred(1, 1), Window::centred(3, 1));
        let x = self.layer(b, x, &at("conv1"), [both; 2], point, active)?;
        let mut parts = b.emit_all(Split { x, axis: 1, sizes: vec![hidden.value; 2] }, &at("halves"))?;
        let [_, second] = parts[..] else { unreachable!("a split has as many results as sizes") };
        let first = self.blocks(b, second, hidden, &at("csp_rep1"))?;
        let first = self.layer(b, first, &at("conv2"), [narrow; 2], window, active)?;
        let second = self.blocks(b, first, narrow, &at("csp_rep2"))?;
        let second = self.layer(b, second, &at("conv3"), [narrow; 2], window, active)?;
        parts.extend([first, second]);
        let all = Size::derived(both.value + 2 * narrow.value, "the channels of all maps");
        let joined = b.emit(Concat { parts, axis: 1 }, &at("all"))?;
        self.layer(b, joined, &at("conv4"), [hidden, all], point, active)
    }

    /// `logits` and `pred_boxes` of the maps of the encoder.
    fn decode_finely(&self, b: &mut Builder<'_>, maps: &[ValueId]) -> Result<(), ModelError> {
        let Some(fine) = &self.fine else { unreachable!("D-FINE has settings of its own") };
        let hidden = self.decoder.hidden;
        let labels = b.config.labels()?;
        let (moves, scale) = fine.moves(b)?;
        let memory = self.memory(b, maps)?;
        let (mut x, unbounded) = self.queries(b, &memory, labels)?;
        let mut boxes = sigmoid(b, unbounded, "decoder.boxes")?;
        let mut first = boxes;
        let mut before: Option<(ValueId, ValueId)> = None;
        let numbers = Size::derived(BOX * (fine.bins + 1), "4 * (max_num_bins + 1)");
        let form = [Dim::symbol(BATCH), convolution::dim(self.queries), patches::dim(BOX), patches::dim(fine.bins + 1)];
        let mut spread = x;
        for layer in 0..self.decoder.layers {
            let path = format!("decoder.layers.{layer}");
            let at = |name: &str| format!("{path}.{name}");
            x = self.layer_of_queries(b, x, boxes, &memory, &path)?;
            if layer == 0 {
                let moved = detection::perceptron(b, x, "decoder.pre_bbox_head", [box_size(), hidden], LAYERS)?;
                let logits = logits_of(b, boxes, &path)?;
                let moved = b.add(moved, logits, &at("first"))?;
                first = sigmoid(b, moved, &at("first"))?;
            }
            let head = head(b, "bbox_embed", layer, ("layers.0.weight", self.shares_heads));
            let states = match before {
                Some((states, _)) => b.add(x, states, &at("both"))?,
                None => x,
            };
            let mut corners = detection::perceptron(b, states, &head, [numbers, hidden], LAYERS)?;
            if let Some((_, own)) = before {
                corners = b.add(corners, own, &at("corners"))?;
            }
            before = Some((x, corners));
            let sides = b.reshape(corners, form.clone(), &at("sides"))?;
            spread = b.emit(Softmax { x: sides }, &at("distributions"))?;
            let weighted = b.binary(BinaryKind::Mul, [spread, moves], &at("weighted"))?;
            let sum = Reduce { kind: ReduceKind::Sum, x: weighted, axes: vec![3], keep: false };
            let distances = b.emit(sum, &at("distances"))?;
            boxes = moved(b, first, distances, scale, &path)?;
        }
        let last = self.decoder.layers - 1;
        let classes = head(b, "class_embed", last, ("weight", self.shares_heads));
        let logits = b.linear(x, &classes, labels, hidden)?;
        let exact = self.exactness(b, fine, spread, &format!("decoder.lqe_layers.{last}"))?;
        let logits = b.add(logits, exact, "decoder.logits")?;
        b.give(names::LOGITS, logits);
        b.give(names::PRED_BOXES, boxes);
        Ok(())
    }

    /// How exact boxes are, [batch_size, queries, 1], by the distributions of their sides, [batch_size, queries, 4, bins + 1].
    fn exactness(&self, b: &mut Builder<'_>, fine: &Fine, spread: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let top = TopK { x: spread, axis: 3, k: patches::dim(fine.top), smallest: Flag(false) };
        let [best, _] = b.emit_all(top, &format!("{path}.top"))?[..] else {
            unreachable!("there are elements and their places")
        };
        let mean = Reduce { kind: ReduceKind::Mean, x: best, axes: vec![3], keep: true };
        let mean = b.emit(mean, &format!("{path}.mean"))?;
        let all = b.emit(Concat { parts: vec![best, mean], axis: 3 }, &format!("{path}.all"))?;
        let count = Size::derived(BOX * (fine.top + 1), "4 * (top_prob_values + 1)");
        let form = [Dim::symbol(BATCH), convolution::dim(self.queries), convolution::dim(count)];
        let all = b.reshape(all, form, &format!("{path}.numbers"))?;
        let out = Size::derived(1, "a number of each box");
        detection::perceptron_from(b, all, &format!("{path}.reg_conf"), [out, fine.exact, count], fine.exact_layers)
    }
}

/// Boxes, as center, width and height, whose sides (left, top, right, bottom) are moved by parts of their width and height.
fn moved(
    b: &mut Builder<'_>,
    boxes: ValueId,
    distances: ValueId,
    scale: f64,
    path: &str,
) -> Result<ValueId, ModelError> {
    const KEY: &str = "reg_scale";
    let at = |name: &str| format!("{path}.box.{name}");
    let mut halves = |x: ValueId, name: &str| -> Result<[ValueId; 2], ModelError> {
        let mut part = |start: i64, name: &str| {
            b.emit(Slice { x, axis: 2, start: Dim::constant(start), end: Dim::constant(start + 2) }, name)
        };
        Ok([part(0, &at(&format!("{name}.first")))?, part(2, &at(&format!("{name}.last")))?])
    };
    let ([centers, sizes], [start, end]) = (halves(boxes, "before")?, halves(distances, "distances")?);
    let unit = b.with_number(BinaryKind::Mul, sizes, 1.0 / scale, &at("unit"), KEY)?;
    let shift = b.binary(BinaryKind::Sub, [end, start], &at("shift"))?;
    let shift = b.with_number(BinaryKind::Mul, shift, 0.5, &at("shift.half"), "model_type")?;
    let shift = b.binary(BinaryKind::Mul, [shift, unit], &at("shift.units"))?;
    let centers = b.add(centers, shift, &at("centers"))?;
    let growth = b.add(start, end, &at("growth"))?;
    let sizes = b.with_number(BinaryKind::Add, growth, scale, &at("sizes"), KEY)?;
    let sizes = b.binary(BinaryKind::Mul, [sizes, unit], &at("sizes.units"))?;
    b.emit(Concat { parts: vec![centers, sizes], axis: 2 }, &at("moved"))
}
