//! Attention, and the keys and values of caches.

use planish_ir::ops::Attention;
use planish_ir::{AttentionChoice, AttentionForm, AttentionKernels, AttentionSizes, DType, ValueId, choose_attention};

use super::build::Builder;
use super::elementwise::{elements, grid_of, named};
use super::tiles::Tile;
use super::view::row_major;
use super::{Argument, Place, Style, Target, View};
use crate::cuda::device::Grid;
use crate::cuda::source::{DECODE, FLASH, FLASH_FLOAT, SCORES, Source};

/// Whether a device computes attention of packed batches: in tiles, which its shared memory has to hold.
pub(crate) fn takes_packed(target: &Target, dtype: DType, size: usize, value_size: usize) -> bool {
    let is_float32 = dtype == DType::F32;
    let largest = size.max(value_size);
    let [head, value_head] = [size, value_size].map(|size| size.next_multiple_of(16));
    let holds = |tile: Tile| tile.shared(is_float32, head, value_head) <= target.shared_memory;
    (1..=target.attention.largest_head).contains(&largest) && Tile::all(is_float32, largest).into_iter().all(holds)
}

/// The sequences of a packed batch.
#[derive(Clone, Copy)]
struct Sequences {
    /// Where each of them starts among the tokens, and the end: i32.
    starts: Place,
    count: usize,
    /// The most tokens of one.
    longest: usize,
}

/// An attention whose operands are views [batch, heads, length, size].
struct Call<'a> {
    op: &'a Attention,
    q: View,
    keys: View,
    values: View,
    mask: Option<View>,
    bias: Option<View>,
    /// [batch, heads, queries, size of values], in the memory of the result.
    out: View,
    /// The position of the first query among the keys.
    offset: usize,
    /// Of a packed batch, which is one row of tokens.
    sequences: Option<Sequences>,
}

impl Call<'_> {
    fn sizes(&self) -> AttentionSizes {
        let all = (self.q.shape[0], self.q.shape[2], self.keys.shape[2]);
        let (batch, queries, keys) = self.sequences.map_or(all, |all| (all.count, all.longest, all.longest));
        AttentionSizes {
            batch,
            heads: self.q.shape[1],
            kv_heads: self.keys.shape[1],
            queries,
            keys,
            size: self.q.shape[3],
            value_size: self.values.shape[3],
        }
    }

    /// The tile of flash. More queries for a block read keys less often, where there are enough blocks for the device, and
    /// two of them fit a multiprocessor.
    fn tile(&self, target: &Target) -> Tile {
        let sizes = self.sizes();
        let is_float32 = self.q.dtype == DType::F32;
        let is_masked_twice = self.op.goes_by_position() && self.mask.is_some();
        let is_plain = self.bias.is_none() && self.op.softcap.is_none() && !is_masked_twice;
        let is_large = match is_float32 {
            true => sizes.queries > 32,
            false => is_plain && sizes.queries.div_ceil(128) * sizes.heads * sizes.batch >= target.attention.blocks,
        };
        Tile::held(is_float32, sizes.size, sizes.value_size, is_large, target)
    }

    /// The macros that all kernels of attention take.
    fn macros(&self, source: Source) -> Result<Source, String> {
        let bias = self.bias.as_ref().map_or(self.q.dtype, |bias| bias.dtype);
        Ok(source
            .with("ELEMENT", named(self.q.dtype)?)
            .with("CAUSAL", self.op.causal.0)
            .with("WINDOW", self.op.window.is_some())
            .with("MASK", self.mask.is_some())
            .with("BIAS", self.bias.is_some())
            .with("SOFTCAP", self.op.softcap.is_some())
            .with("BIAS_T", named(bias)?))
    }

    /// The structure `Attention` of kernels, for a part of the queries.
    fn parameters(&self, splits: usize, queries: usize) -> Result<Argument, String> {
        let sizes = self.sizes();
        let int = |n: usize| i32::try_from(n).map(i32::cast_unsigned).map_err(|_| super::too_large(n));
        #[allow(clippy::cast_possible_truncation, reason = "kernels take float32")]
        let float = |x: f64| (x as f32).to_bits();
        let words = [
            int(sizes.batch)?,
            int(sizes.heads)?,
            int(sizes.kv_heads)?,
            int(queries)?,
            int(sizes.keys)?,
            int(sizes.size)?,
            int(sizes.value_size)?,
            int(self.offset)?,
            int(self.op.window.unwrap_or(0))?,
            int(splits)?,
            float(self.op.scale.0),
            float(self.op.softcap.map_or(0.0, |cap| cap.0)),
        ];
        let mut values: Vec<u64> =
            words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
        for tensor in [&self.q, &self.keys, &self.values, &self.out] {
            values.extend([0, 2, 1].map(|axis| tensor.strides[axis] as u64));
        }
        let strides = |view: &Option<View>, axes: usize| match view {
            Some(view) => view.strides[..axes].iter().map(|s| *s as u64).collect(),
            None => vec![0; axes],
        };
        values.extend(strides(&self.bias, 4));
        values.extend(strides(&self.mask, 1));
        Ok(Argument::Value(values))
    }

    fn place(view: &Option<View>) -> Argument {
        Argument::optional(view.as_ref().map(|view| view.place))
    }
}

impl Builder<'_> {
    pub(super) fn attention(&mut self, results: &[ValueId], op: &Attention) -> Result<(), String> {
        let [result, present @ ..] = results else { return Ok(()) };
        let q = self.view(op.q)?;
        let q = self.split_heads(q, op.heads)?;
        let past = op.past_key.map(|past| self.view(past)).transpose()?.map_or(0, |past| past.shape[2]);
        let keys = self.cached(op.k, op.past_key, present.first().copied(), op.kv_heads())?;
        let values = self.cached(op.v, op.past_value, present.get(1).copied(), op.kv_heads())?;
        let [queries, total] = [q.shape[2], keys.shape[2]];
        // Keys as caches hold them, without a past, end with those of the queries.
        let offset = match op.past_key {
            Some(_) => past,
            None if op.goes_by_position() => total.checked_sub(queries).ok_or("there are fewer keys than queries")?,
            None => 0,
        };
        let sequences = self.packed.as_ref().and_then(|packed| {
            let (count, longest) = (packed.sizes.sequences(), packed.sizes.sequence);
            Some(Sequences { starts: packed.starts()?.place, count, longest })
        });
        // The mask of a packed batch leaves out padding, which is not there.
        let mask = op.mask.filter(|_| sequences.is_none()).map(|mask| self.view(mask)).transpose()?;
        let mask =
            mask.map(|mask| if mask.strides[1] == 1 { Ok(mask) } else { self.without_gaps(mask) }).transpose()?;
        let scores = match sequences {
            Some(all) => [all.count, op.heads, all.longest, all.longest],
            None => [q.shape[0], op.heads, queries, total],
        };
        let bias = op.bias.map(|bias| self.view(bias)).transpose()?.map(|bias| bias.expand(&scores));
        let out = self.result(*result)?;
        let out = self.split_heads(out, op.heads)?;
        let call = Call { op, q, keys, values, mask, bias, out, offset, sequences };
        let sizes = call.sizes();
        if sizes.keys == 0 {
            let place = call.out.place;
            let out = View::contiguous(place, call.out.dtype, vec![call.out.elements()]);
            return self.pointwise(&out, "0 * i", &[]);
        }
        if self.target.style == Style::Unfused {
            return self.materialized(&call);
        }
        let name = self.graph.value(*result).name.clone();
        if call.sequences.is_some() {
            self.attentions.push(format!("`{name}`: flash: the tokens of the batch are packed"));
            return self.flash(&call);
        }
        let choice = self.form(&call, sizes);
        self.attentions.push(format!("`{name}`: {choice}"));
        match choice.form {
            AttentionForm::Math => self.math(&call, sizes.queries),
            AttentionForm::Chunked { queries } => self.math(&call, queries),
            AttentionForm::Flash => self.flash(&call),
            AttentionForm::Split { parts } => self.split_keys(&call, parts),
        }
    }

    /// The form of attention.
    fn form(&self, call: &Call<'_>, mut sizes: AttentionSizes) -> AttentionChoice {
        let kernels = self.target.attention;
        // In a cache the keys of a head have the room for more after them; elsewhere heads lie side by side.
        let room = call.keys.strides[1].checked_div(call.keys.strides[2]).unwrap_or(0);
        if !self.caches.by_capacity || room == 0 {
            return choose_attention(&sizes, call.q.dtype, &kernels);
        }
        sizes.keys = sizes.keys.max(room);
        choose_attention(&sizes, call.q.dtype, &AttentionKernels { float_scores: 0, ..kernels })
    }

    /// [batch, length, heads * size] as [batch, heads, length, size].
    pub(super) fn split_heads(&mut self, x: View, heads: usize) -> Result<View, String> {
        let [batch, length, features] = x.shape[..] else { return Err("it has other axes than 3".to_owned()) };
        let shape = [batch, length, heads, features / heads];
        let x = match x.reshape(&shape).filter(|x| x.strides[3] == 1 || x.shape[3] == 1) {
            Some(x) => x,
            None => {
                let dtype = x.dtype;
                View::contiguous(self.without_gaps(x)?.place, dtype, shape.to_vec())
            }
        };
        Ok(x.transpose(&[0, 2, 1, 3]))
    }

    /// Attention that never stores its scores.
    fn flash(&mut self, call: &Call<'_>) -> Result<(), String> {
        let sizes = call.sizes();
        let is_float32 = call.q.dtype == DType::F32;
        let tile = call.tile(&self.target);
        let [head, value_head] = [sizes.size, sizes.value_size].map(|size| size.next_multiple_of(16));
        let shared = tile.shared(is_float32, head, value_head);
        if shared > self.target.shared_memory && call.sequences.is_none() {
            return self.math(call, sizes.queries);
        }
        let source = Source::new(if is_float32 { FLASH_FLOAT } else { FLASH }, "flash");
        let source = call
            .macros(source)?
            .with("HEAD", head)
            .with("VALUE_HEAD", value_head)
            .with("ROWS", tile.rows)
            .with("KEYS", tile.keys)
            .with("RAGGED", call.sequences.is_some());
        let blocks = [sizes.queries.div_ceil(tile.rows), sizes.heads, sizes.batch];
        let grid =
            Grid { shared: u32::try_from(shared).map_err(|_| super::too_large(shared))?, ..grid_of(blocks, 128)? };
        let mut arguments = vec![
            Argument::At(call.out.place),
            Argument::At(call.q.place),
            Argument::At(call.keys.place),
            Argument::At(call.values.place),
            Call::place(&call.mask),
            Call::place(&call.bias),
            call.parameters(1, sizes.queries)?,
        ];
        arguments.extend(call.sequences.map(|sequences| Argument::At(sequences.starts)));
        self.launch(source, grid, arguments);
        Ok(())
    }

    /// Attention of few queries, whose keys are divided among blocks.
    fn split_keys(&mut self, call: &Call<'_>, parts: usize) -> Result<(), String> {
        let sizes = call.sizes();
        let rows = (sizes.queries * (sizes.heads / sizes.kv_heads)).next_power_of_two();
        let [head, value_head] = [sizes.size, sizes.value_size].map(|size| size.next_multiple_of(16));
        let partial = [sizes.batch, sizes.heads, sizes.queries, parts, sizes.value_size + 2];
        let partial = self.temporary(DType::F32, partial.to_vec())?;
        let source = |kernel| {
            let source = call.macros(Source::new(DECODE, kernel))?;
            Ok::<_, String>(source.with("HEAD", head).with("VALUE_HEAD", value_head).with("ROWS", rows))
        };
        let parameters = call.parameters(parts, sizes.queries)?;
        let arguments = vec![
            Argument::At(partial.place),
            Argument::At(call.q.place),
            Argument::At(call.keys.place),
            Argument::At(call.values.place),
            Call::place(&call.mask),
            Call::place(&call.bias),
            parameters.clone(),
        ];
        self.launch(source("decode")?, grid_of([parts, sizes.kv_heads, sizes.batch], 128)?, arguments);
        let arguments = vec![
            Argument::At(call.out.place),
            Argument::At(partial.place),
            Argument::At(call.values.place),
            parameters,
        ];
        self.launch(source("decode_combine")?, grid_of([sizes.queries, sizes.heads, sizes.batch], 128)?, arguments);
        Ok(())
    }

    /// Attention with the scores of some queries at a time in memory: two products, and a softmax in one kernel.
    fn math(&mut self, call: &Call<'_>, chunk: usize) -> Result<(), String> {
        let sizes = call.sizes();
        let heads = sizes.kv_heads;
        let (mut keys, mut values) = (call.keys.clone(), call.values.clone());
        if sizes.batch > 1 && keys.strides[0] != sizes.kv_heads * keys.strides[1] {
            (keys, values) = (self.without_gaps(keys)?, self.without_gaps(values)?);
        }
        for first in (0..sizes.queries).step_by(chunk.max(1)) {
            let last = sizes.queries.min(first + chunk);
            let shape = vec![sizes.batch, sizes.heads, last - first, sizes.keys];
            let scores = self.temporary(DType::F32, shape.clone())?;
            #[allow(clippy::cast_possible_truncation, reason = "products scale in float32")]
            let scale = call.op.scale.0 as f32;
            // Operands without gaps make one batch of all rows and heads.
            let apart = |builder: &mut Self, x: View| if sizes.batch > 1 { builder.without_gaps(x) } else { Ok(x) };
            let q = apart(self, call.q.slice(2, first, last))?;
            let q = self.grouped(q, heads)?;
            let grouped_scores = self.grouped(scores.clone(), heads)?;
            self.product(&grouped_scores, q, keys.transpose(&[0, 1, 3, 2]), scale)?;
            let weights = self.temporary(call.q.dtype, shape)?;
            let source = call.macros(Source::new(SCORES, "scores_softmax"))?.with("S", "float");
            let arguments = vec![
                Argument::At(weights.place),
                Argument::At(scores.place),
                Call::place(&call.mask),
                Call::place(&call.bias),
                call.parameters(1, last - first)?,
                Argument::int(first)?,
            ];
            let rows = sizes.batch * sizes.heads * (last - first);
            self.launch(source, grid_of([rows, 1, 1], 128)?, arguments);
            let out = call.out.slice(2, first, last);
            let mixed = self.temporary(call.q.dtype, out.shape.clone())?;
            let (grouped, weights) = (self.grouped(mixed.clone(), heads)?, self.grouped(weights, heads)?);
            self.product(&grouped, weights, values.clone(), 1.0)?;
            self.copy(&out, &mixed)?;
        }
        Ok(())
    }

    /// Attention as a list of operators: heads apart, a product, the mask, the softmax, a product, heads together.
    fn materialized(&mut self, call: &Call<'_>) -> Result<(), String> {
        let sizes = call.sizes();
        let (heads, dtype) = (sizes.kv_heads, call.q.dtype);
        let q = self.without_gaps(call.q.clone())?;
        // Caches have heads apart; rows of a head have no gaps, whatever room is after them.
        let keys = self.apart(&call.keys)?;
        let values = self.apart(&call.values)?;
        let scores = self.temporary(dtype, vec![sizes.batch, sizes.heads, sizes.queries, sizes.keys])?;
        #[allow(clippy::cast_possible_truncation, reason = "products scale in float32")]
        let scale = call.op.scale.0 as f32;
        let (q, grouped) = (self.grouped(q, heads)?, self.grouped(scores.clone(), heads)?);
        self.product(&grouped, q, keys.transpose(&[0, 1, 3, 2]), scale)?;
        if call.op.goes_by_position() || call.mask.is_some() || call.bias.is_some() || call.op.softcap.is_some() {
            let source = call.macros(Source::new(SCORES, "attention_scores"))?.with("S", named(dtype)?);
            let arguments = vec![
                Argument::At(scores.place),
                Call::place(&call.mask),
                Call::place(&call.bias),
                call.parameters(1, sizes.queries)?,
                Argument::int(0)?,
            ];
            self.launch(source, elements(scores.elements())?, arguments);
        }
        let weights = self.temporary(dtype, scores.shape.clone())?;
        self.softmax_rows(weights.place, scores.place, scores.elements() / sizes.keys, sizes.keys, named(dtype)?)?;
        let mixed = self.temporary(dtype, call.out.shape.clone())?;
        let (grouped, weights) = (self.grouped(mixed.clone(), heads)?, self.grouped(weights, heads)?);
        self.product(&grouped, weights, values, 1.0)?;
        self.copy(&call.out, &mixed)
    }

    /// [batch, heads, length, size] as [batch, kv heads, rows, size]: the rows that share keys are one matrix.
    fn grouped(&mut self, x: View, kv_heads: usize) -> Result<View, String> {
        let [batch, heads, length, size] = [0, 1, 2, 3].map(|axis| x.shape[axis]);
        let shape = [batch, kv_heads, heads / kv_heads * length, size];
        match x.reshape(&shape) {
            Some(grouped) => Ok(grouped),
            None => Ok(View { shape: shape.to_vec(), strides: row_major(&shape), ..self.without_gaps(x)? }),
        }
    }

    /// [batch, heads, length, size] whose heads are apart from each other.
    fn apart(&mut self, x: &View) -> Result<View, String> {
        if x.strides[2] == x.shape[3] { Ok(x.clone()) } else { self.without_gaps(x.clone()) }
    }
}
