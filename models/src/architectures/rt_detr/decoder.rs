//! The places that become queries, and the decoder, which makes their boxes better layer by layer.

use planish_ir::ops::{
    Binary, BinaryKind, Cast, Concat, Expand, Flag, Gather, Reduce, ReduceKind, Select, Sizes, Slice, Softmax, TopK,
    Unary, UnaryKind,
};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use super::{Settings, fine};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder};
use crate::layers::convolution::{self, Window};
use crate::layers::detection;
use crate::layers::patches;
use crate::layers::resize;
use crate::names;

/// The side of the box around a place of the largest map, as a part of the image; of each smaller map it is twice as large.
const SIDE: f64 = 0.05;

/// Boxes count whose numbers are this far from 0 and 1.
const MARGIN: f64 = 1e-2;

/// What stands for the logits of other boxes: its sigmoid is 1.
const OUTSIDE: f64 = 1e4;

/// What a probability is at least where its logit is computed.
const LEAST: f64 = 1e-5;

/// The numbers of a box: center, width and height.
pub(super) const BOX: usize = 4;

/// The maps of the encoder as one sequence.
pub(super) struct Memory {
    /// [batch_size, places, d_model].
    states: ValueId,
    /// Height and width of each map.
    sides: Vec<[Dim; 2]>,
    places: Dim,
}

impl Settings {
    /// `logits` and `pred_boxes` of the maps of the encoder.
    pub(super) fn decode(&self, b: &mut Builder<'_>, maps: &[ValueId]) -> Result<(), ModelError> {
        let half = &self.decoder;
        let labels = b.config.labels()?;
        let memory = self.memory(b, maps)?;
        let (mut x, unbounded) = self.queries(b, &memory, labels)?;
        let mut boxes = sigmoid(b, unbounded, "decoder.boxes")?;
        for layer in 0..half.layers {
            let path = format!("decoder.layers.{layer}");
            x = self.layer_of_queries(b, x, boxes, &memory, &path)?;
            let head = head(b, "bbox_embed", layer, ("layers.0.weight", self.shares_heads));
            let change = detection::perceptron(b, x, &head, [box_size(), half.hidden], 3)?;
            let logits = logits_of(b, boxes, &path)?;
            let moved = b.add(change, logits, &format!("{path}.box"))?;
            boxes = sigmoid(b, moved, &format!("{path}.box"))?;
        }
        let classes = head(b, "class_embed", half.layers - 1, ("weight", self.shares_heads));
        let logits = b.linear(x, &classes, labels, half.hidden)?;
        b.give(names::LOGITS, logits);
        b.give(names::PRED_BOXES, boxes);
        Ok(())
    }

    /// A layer of the decoder.
    pub(super) fn layer_of_queries(
        &self,
        b: &mut Builder<'_>,
        mut x: ValueId,
        boxes: ValueId,
        memory: &Memory,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let half = &self.decoder;
        let mut positions = self.query_positions(b, boxes)?;
        if self.fine.is_some() {
            positions = fine::clamp(b, positions, fine::FARTHEST, &format!("{path}.positions"))?;
        }
        let attended = half.attention(b, x, Some(positions), &format!("{path}.self_attn"))?;
        x = b.add(x, attended, &format!("{path}.self_attn.add"))?;
        x = b.layer_norm(x, &format!("{path}.self_attn_layer_norm"), half.hidden, self.eps)?;
        let at = b.add(x, positions, &format!("{path}.encoder_attn.positions"))?;
        let sampled = self.sample(b, at, boxes, memory, &format!("{path}.encoder_attn"))?;
        if self.fine.is_some() {
            x = fine::gate(b, [x, sampled], half.hidden, &format!("{path}.gateway"))?;
        } else {
            x = b.add(x, sampled, &format!("{path}.encoder_attn.add"))?;
            x = b.layer_norm(x, &format!("{path}.encoder_attn_layer_norm"), half.hidden, self.eps)?;
        }
        let made = half.feed_forward(b, x, path)?;
        x = b.add(x, made, &format!("{path}.add"))?;
        if self.fine.is_some() {
            x = fine::clamp(b, x, fine::LARGEST, &format!("{path}.bounded"))?;
        }
        b.layer_norm(x, &format!("{path}.final_layer_norm"), half.hidden, self.eps)
    }

    /// The maps, projected, as one sequence. Further maps are made of the last one.
    pub(super) fn memory(&self, b: &mut Builder<'_>, maps: &[ValueId]) -> Result<Memory, ModelError> {
        let Some(&last) = maps.last() else { unreachable!("there is a map at least") };
        let (mut parts, mut sides, mut places) = (Vec::new(), Vec::new(), Dim::constant(0));
        for level in 0..self.levels.value {
            let modules = [0, 1].map(|part| format!("decoder_input_proj.{level}.{part}"));
            let (map, window) = match maps.get(level) {
                Some(map) => (*map, Window::centred(1, 1)),
                None => (last, Window::centred(3, 2)),
            };
            let channels = [self.decoder.hidden, self.encoder.hidden];
            // D-FINE projects no map that has the width of the decoder, nor makes smaller ones of it.
            let map = match self.fine.is_some() && channels[0].value == channels[1].value {
                true => map,
                false => convolution::normalized(b, map, [&modules[0], &modules[1]], channels, window)?,
            };
            let [_, _, height, width] = convolution::dims(b, map)?;
            let all = height.checked_mul(&width).and_then(|count| places.checked_add(&count));
            places = all.ok_or_else(|| b.config.error("images have more places than 64 bits count"))?;
            sides.push([height, width]);
            parts.push(convolution::tokens(b, map, &modules[0])?);
        }
        let states = b.emit(Concat { parts, axis: 1 }, "decoder.memory")?;
        Ok(Memory { states, sides, places })
    }

    /// The states of the places that score best, [batch_size, queries, d_model], and the logits of their boxes.
    pub(super) fn queries(
        &self,
        b: &mut Builder<'_>,
        memory: &Memory,
        labels: Size,
    ) -> Result<(ValueId, ValueId), ModelError> {
        let hidden = self.decoder.hidden;
        let (boxes, counts) = anchors(b, memory)?;
        let kept = b.binary(BinaryKind::Mul, [memory.states, counts], "enc_output.kept")?;
        let states = b.linear(kept, "enc_output.0", hidden, hidden)?;
        let states = b.layer_norm(states, "enc_output.1", hidden, self.eps)?;
        let scores = b.linear(states, "enc_score_head", labels, hidden)?;
        let best = Reduce { kind: ReduceKind::Max, x: scores, axes: vec![2], keep: false };
        let best = b.emit(best, "enc_score_head.best")?;
        let queries = convolution::dim(self.queries);
        let top = TopK { x: best, axis: 1, k: queries.clone(), smallest: Flag(false) };
        let [_, at] = b.emit_all(top, "queries.top")?[..] else { unreachable!("there are elements and their places") };
        let rows = b.reshape(at, [Dim::symbol(BATCH), queries.clone(), Dim::constant(1)], "queries.rows")?;
        let states = convolution::gather_rows(b, states, rows, "queries.states")?;
        let moved = detection::perceptron(b, states, "enc_bbox_head", [box_size(), hidden], 3)?;
        let around = b.emit(Gather { x: boxes, indices: at, axis: 0 }, "queries.around")?;
        let boxes = b.add(moved, around, "queries.boxes")?;
        Ok((states, boxes))
    }

    /// The positions of queries, by their boxes.
    fn query_positions(&self, b: &mut Builder<'_>, boxes: ValueId) -> Result<ValueId, ModelError> {
        const PATH: &str = "decoder.query_pos_head";
        let hidden = self.decoder.hidden;
        let wide = Size::derived(2 * hidden.value, "2 * d_model");
        detection::perceptron_from(b, boxes, PATH, [hidden, wide, box_size()], 2)
    }

    /// What queries take of the maps at the places that they say, around their boxes (Zhu et al. 2020, arXiv:2010.04159).
    fn sample(
        &self,
        b: &mut Builder<'_>,
        queries: ValueId,
        boxes: ValueId,
        memory: &Memory,
        path: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let half = &self.decoder;
        let (heads, points) = (half.heads.value, self.points.iter().sum::<usize>());
        let (batch, count) = (Dim::symbol(BATCH), convolution::dim(self.queries));
        let [of_heads, all] = [heads, points].map(patches::dim);
        let rows = batch.checked_mul(&of_heads);
        let Some(rows) = rows else { return Err(b.config.error("there are more heads than 64 bits count")) };
        let size = patches::dim(half.hidden.value / heads);

        let samples = Size::derived(heads * points, "heads * samples of all maps");
        let numbers = Size::derived(2 * samples.value, "x and y of samples");
        let offsets = b.linear(queries, &at("sampling_offsets"), numbers, half.hidden)?;
        let form = [batch.clone(), count.clone(), of_heads.clone(), all.clone(), Dim::constant(2)];
        let offsets = b.reshape(offsets, form, &at("offsets"))?;
        let scale = self.scale(b, points, path)?;
        let offsets = b.binary(BinaryKind::Mul, [offsets, scale], &at("of_points"))?;
        let offsets =
            b.with_number(BinaryKind::Mul, offsets, self.offset_scale, &at("scaled"), "decoder_offset_scale")?;
        let one = Dim::constant(1);
        let mut part = |start: i64, name: &str| {
            let slice = Slice { x: boxes, axis: 2, start: Dim::constant(start), end: Dim::constant(start + 2) };
            let part = b.emit(slice, &at(name))?;
            let form = [batch.clone(), count.clone(), one.clone(), one.clone(), Dim::constant(2)];
            b.reshape(part, form, &at(&format!("{name}.spread")))
        };
        let (centers, sizes) = (part(0, "centers")?, part(2, "sizes")?);
        let moved = b.binary(BinaryKind::Mul, [offsets, sizes], &at("moved"))?;
        let places = b.add(centers, moved, &at("places"))?;
        let doubled = b.with_number(BinaryKind::Mul, places, 2.0, &at("doubled"), "model_type")?;
        let grid = b.with_number(BinaryKind::Sub, doubled, 1.0, &at("grid"), "model_type")?;

        let values = match self.fine {
            Some(_) => memory.states,
            None => b.linear(memory.states, &at("value_proj"), half.hidden, half.hidden)?,
        };
        let (mut start, mut before) = (Dim::constant(0), 0);
        let mut taken = Vec::new();
        for (level, ([height, width], points)) in memory.sides.iter().zip(&self.points).enumerate() {
            let at = |name: &str| format!("{path}.{level}.{name}");
            let end = height.checked_mul(width).and_then(|count| start.checked_add(&count));
            let end = end.ok_or_else(|| b.config.error("images have more places than 64 bits count"))?;
            let map = b.emit(Slice { x: values, axis: 1, start: start.clone(), end: end.clone() }, &at("values"))?;
            start = end;
            let form = [batch.clone(), height.clone(), width.clone(), of_heads.clone(), size.clone()];
            let map = b.reshape(map, form, &at("heads"))?;
            let map = b.transpose(map, &[0, 3, 4, 1, 2], &at("heads_first"))?;
            let map = b.reshape(map, [rows.clone(), size.clone(), height.clone(), width.clone()], &at("map"))?;
            let slice = Slice { x: grid, axis: 3, start: patches::dim(before), end: patches::dim(before + points) };
            before += points;
            let own = b.emit(slice, &at("grid"))?;
            let own = b.transpose(own, &[0, 2, 1, 3, 4], &at("grid.heads_first"))?;
            let form = [rows.clone(), count.clone(), patches::dim(*points), Dim::constant(2)];
            let own = b.reshape(own, form, &at("grid.rows"))?;
            taken.push(resize::grid_sample(b, map, own, &at("sample"))?);
        }
        let taken = b.emit(Concat { parts: taken, axis: 3 }, &at("samples"))?;
        let weights = b.linear(queries, &at("attention_weights"), samples, half.hidden)?;
        let weights = b.reshape(weights, [batch.clone(), count.clone(), of_heads, all.clone()], &at("weights"))?;
        let weights = b.emit(Softmax { x: weights }, &at("weights.softmax"))?;
        let weights = b.transpose(weights, &[0, 2, 1, 3], &at("weights.heads_first"))?;
        let weights = b.reshape(weights, [rows, one, count.clone(), all], &at("weights.rows"))?;
        let weighted = b.binary(BinaryKind::Mul, [taken, weights], &at("weighted"))?;
        let sum = b.emit(Reduce { kind: ReduceKind::Sum, x: weighted, axes: vec![3], keep: false }, &at("sum"))?;
        let sum = b.reshape(sum, [batch, convolution::dim(half.hidden), count], &at("sum.heads"))?;
        let sum = b.transpose(sum, &[0, 2, 1], &at("sum.queries"))?;
        if self.fine.is_some() { Ok(sum) } else { b.linear(sum, &at("output_proj"), half.hidden, half.hidden) }
    }

    /// What distances of samples are multiplied by, [samples, 1]: 1 divided by the samples of their map. Checkpoints of RT-DETR v2
    /// and D-FINE store it, as rounded as their weights are.
    fn scale(&self, b: &mut Builder<'_>, all: usize, path: &str) -> Result<ValueId, ModelError> {
        let names = ["n_points_scale", "num_points_scale"].map(|name| format!("{path}.{name}"));
        let module = format!("{path}.scale");
        let scale = match names.iter().find(|name| b.tensors.contains(name)) {
            Some(stored) => b.weight(&[stored], &[Size::derived(all, "samples of all maps")])?,
            None => {
                let parts: Vec<f64> = self.points.iter().flat_map(|count| vec![1.0 / *count as f64; *count]).collect();
                let parts = Weight::numbers(DType::F32, vec![all], &parts);
                let parts = parts.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
                b.graph.add_weight(&format!("{module}.parts"), parts, Origin::Config("decoder_n_points".into()))
            }
        };
        b.reshape(scale, [patches::dim(all), Dim::constant(1)], &module)
    }
}

/// The logits of a box around each place, [places, 4], and whether it counts, 1 or 0: [1, places, 1].
fn anchors(b: &mut Builder<'_>, memory: &Memory) -> Result<(ValueId, ValueId), ModelError> {
    let mut levels = Vec::new();
    for (level, [height, width]) in memory.sides.iter().enumerate() {
        let at = |name: &str| format!("anchors.{level}.{name}");
        let mut along = |side: &Dim, name: &str, form: [Dim; 3]| {
            let numbers = detection::numbers(b, side, &at(name))?;
            let centers =
                b.with_number(BinaryKind::Add, numbers, 0.5, &at(&format!("{name}.centers")), "model_type")?;
            let count = b.emit(Sizes { of: Shape::new([side.clone()]) }, &at(&format!("{name}.count")))?;
            let count = b.emit(Cast { x: count, to: DType::F32 }, &at(&format!("{name}.number")))?;
            let parts = b.binary(BinaryKind::Div, [centers, count], &at(&format!("{name}.parts")))?;
            let parts = b.reshape(parts, form, &at(&format!("{name}.form")))?;
            let shape = Shape::new([height.clone(), width.clone(), Dim::constant(1)]);
            b.emit(Expand { x: parts, shape }, &at(&format!("{name}.expand")))
        };
        let one = Dim::constant(1);
        let x = along(width, "x", [one.clone(), width.clone(), one.clone()])?;
        let y = along(height, "y", [height.clone(), one.clone(), one])?;
        let side =
            b.number(SIDE * 2f64.powi(i32::try_from(level).unwrap_or(i32::MAX)), &at("side"), "num_feature_levels");
        let shape = Shape::new([height.clone(), width.clone(), Dim::constant(2)]);
        let sides = b.emit(Expand { x: side, shape }, &at("sides"))?;
        let boxes = b.emit(Concat { parts: vec![x, y, sides], axis: 2 }, &at("boxes"))?;
        let Some(count) = height.checked_mul(width) else {
            return Err(b.config.error("images have more places than 64 bits count"));
        };
        levels.push(b.reshape(boxes, [count, patches::dim(BOX)], &at("places"))?);
    }
    let boxes = b.emit(Concat { parts: levels, axis: 0 }, "anchors")?;
    let (least, most) =
        (b.number(MARGIN, "anchors.least", "model_type"), b.number(1.0 - MARGIN, "anchors.most", "model_type"));
    let above = b.emit(Binary { kind: BinaryKind::Greater, a: boxes, b: least }, "anchors.above")?;
    let below = b.emit(Binary { kind: BinaryKind::Less, a: boxes, b: most }, "anchors.below")?;
    let inside = b.binary(BinaryKind::And, [above, below], "anchors.inside")?;
    let inside = b.emit(Cast { x: inside, to: DType::F32 }, "anchors.inside.number")?;
    let counts =
        b.emit(Reduce { kind: ReduceKind::Min, x: inside, axes: vec![1], keep: true }, "anchors.all_inside")?;
    // What is not inside has no logit, which is not taken.
    let bounded = b.binary(BinaryKind::Max, [boxes, least], "anchors.not_below")?;
    let bounded = b.binary(BinaryKind::Min, [bounded, most], "anchors.bounded")?;
    let logits = logits(b, bounded, "anchors")?;
    let half = b.number(0.5, "anchors.half", "model_type");
    let condition = b.emit(Binary { kind: BinaryKind::Greater, a: counts, b: half }, "anchors.count")?;
    let outside = b.number(OUTSIDE, "anchors.outside", "model_type");
    let logits = b.emit(Select { condition, a: logits, b: outside }, "anchors.logits")?;
    let counts = b.reshape(counts, [Dim::constant(1), memory.places.clone(), Dim::constant(1)], "anchors.counts")?;
    Ok((logits, counts))
}

/// The logits of probabilities, of which those of 0 and 1 are bounded.
pub(super) fn logits_of(b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.logits.{name}");
    let (least, one) = (b.number(LEAST, &at("least"), "model_type"), b.number(1.0, &at("one"), "model_type"));
    let first = b.binary(BinaryKind::Max, [x, least], &at("bounded"))?;
    let rest = b.binary(BinaryKind::Sub, [one, x], &at("rest"))?;
    let rest = b.binary(BinaryKind::Max, [rest, least], &at("rest.bounded"))?;
    let ratio = b.binary(BinaryKind::Div, [first, rest], &at("ratio"))?;
    b.emit(Unary { kind: UnaryKind::Log, x: ratio }, &at("log"))
}

/// The logits of probabilities between 0 and 1.
fn logits(b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let one = b.number(1.0, &format!("{path}.one"), "model_type");
    let rest = b.binary(BinaryKind::Sub, [one, x], &format!("{path}.rest"))?;
    let ratio = b.binary(BinaryKind::Div, [x, rest], &format!("{path}.ratio"))?;
    b.emit(Unary { kind: UnaryKind::Log, x: ratio }, &format!("{path}.log"))
}

pub(super) fn sigmoid(b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    b.emit(Unary { kind: UnaryKind::Sigmoid, x }, &format!("{path}.sigmoid"))
}

pub(super) fn box_size() -> Size {
    Size::derived(BOX, "center, width and height")
}

/// The head of a layer: in the decoder, or around the model, as some checkpoints have it. Of heads that are shared a checkpoint may
/// have the first one only.
pub(super) fn head(b: &Builder<'_>, name: &str, layer: usize, (tensor, shares): (&str, bool)) -> String {
    let own = [format!("decoder.{name}.{layer}"), format!("{name}.{layer}")];
    let first = [format!("decoder.{name}.0"), format!("{name}.0")];
    let is_there = |path: &&String| b.tensors.contains(&format!("{path}.{tensor}"));
    let found = own.iter().find(is_there).or_else(|| first.iter().filter(|_| shares).find(is_there));
    found.unwrap_or(&own[0]).clone()
}
