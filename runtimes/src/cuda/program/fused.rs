//! Fused operators: one kernel each, or the kernels of their parts.

use planish_ir::ops::{Activation, AddNorm, EmbeddingNorm, FusedLinear, Gated, NormKind, RotaryAppend};
use planish_ir::{DType, ValueId};

use super::build::Builder;
use super::elementwise::{elements, grid_of, named, strided};
use super::linear::AfterProduct;
use super::norms::{Norm, norm_grid, norm_shape};
use super::{Argument, Style, View};
use crate::cuda::device::{Epilogue, Grid};
use crate::cuda::source::{NORM, ROTARY, Source};

/// An activation as a function of kernels.
pub(super) fn expression(activation: Activation) -> &'static str {
    match activation {
        Activation::None => "x",
        Activation::GeluErf => "gelu_erf(x)",
        Activation::GeluTanh => "gelu_tanh(x)",
        Activation::Silu => "silu(x)",
        Activation::Relu => "relu(x)",
    }
}

/// How a product computes an activation, where it can.
fn epilogue(activation: Activation) -> Option<Epilogue> {
    match activation {
        Activation::None => Some(Epilogue::None),
        Activation::Relu => Some(Epilogue::Relu),
        Activation::GeluTanh => Some(Epilogue::GeluTanh),
        Activation::GeluErf | Activation::Silu => None,
    }
}

impl Builder<'_> {
    pub(super) fn fused_linear(&mut self, result: ValueId, op: &FusedLinear) -> Result<(), String> {
        let after = AfterProduct {
            activation: expression(op.activation),
            epilogue: epilogue(op.activation),
            residual: op.residual,
        };
        self.layer(result, &op.linear(), after)
    }

    pub(super) fn gated(&mut self, result: ValueId, op: &Gated) -> Result<(), String> {
        if self.target.style == Style::Unfused {
            let (gate, up) = (self.view(op.gate)?, self.view(op.up)?);
            let activated = self.temporary(gate.dtype, gate.shape.clone())?;
            self.pointwise(&activated, expression(op.activation), &[&gate])?;
            let result = self.result(result)?;
            return self.pointwise(&result, "x * y", &[&activated, &up]);
        }
        let expression = match op.activation {
            Activation::None => "x * y",
            Activation::GeluErf => "gelu_erf(x) * y",
            Activation::GeluTanh => "gelu_tanh(x) * y",
            Activation::Silu => "silu(x) * y",
            Activation::Relu => "relu(x) * y",
        };
        self.elementwise(result, expression, &[op.gate, op.up])
    }

    pub(super) fn add_norm(&mut self, results: &[ValueId], op: &AddNorm) -> Result<(), String> {
        let &[result, sum] = results else { return Err("it has two results".to_owned()) };
        let bias = op.bias.map(|bias| self.whole(bias)).transpose()?;
        let weight = self.whole(op.weight)?;
        let norm_bias = op.norm_bias.map(|bias| self.whole(bias)).transpose()?.map(|bias| bias.place);
        let columns = weight.elements();
        let mut norm = Norm::plain(op.norm == NormKind::Rms, weight.place, weight.place, norm_bias, op.eps.0);
        if self.target.style == Style::Unfused {
            let (x, residual) = (self.view(op.x)?, self.view(op.residual)?);
            let sum = self.result(sum)?;
            match &bias {
                Some(bias) => {
                    let biased = self.temporary(x.dtype, x.shape.clone())?;
                    self.pointwise(&biased, "x + y", &[&x, bias])?;
                    self.pointwise(&sum, "x + y", &[&biased, &residual])?;
                }
                None => self.pointwise(&sum, "x + y", &[&x, &residual])?,
            }
            let result = self.result(result)?;
            norm.x = sum.place;
            return self.norm(result.place, &norm, rows(&sum, columns), columns, named(sum.dtype)?);
        }
        let (x, residual) = (self.whole(op.x)?, self.whole(op.residual)?);
        (norm.x, norm.residual, norm.bias) = (x.place, Some(residual.place), bias.map(|bias| bias.place));
        if self.is_used(sum) {
            norm.sum = Some(self.result(sum)?.place);
        }
        let result = self.result(result)?;
        self.norm(result.place, &norm, rows(&x, columns), columns, named(x.dtype)?)
    }

    pub(super) fn embedding_norm(&mut self, results: &[ValueId], op: &EmbeddingNorm) -> Result<(), String> {
        let &[result, sum] = results else { return Err("it has two results".to_owned()) };
        let tables = op.tables.iter().map(|table| self.whole(*table)).collect::<Result<Vec<_>, _>>()?;
        let mut ids = op.ids.iter().map(|ids| self.view(*ids)).collect::<Result<Vec<_>, _>>()?;
        let weight = self.whole(op.weight)?;
        let norm_bias = op.norm_bias.map(|bias| self.whole(bias)).transpose()?.map(|bias| bias.place);
        let columns = weight.elements();
        let shape = self.shape_of(result)?;
        let rows_shape = &shape[..shape.len() - 1];
        let dtype = tables[0].dtype;
        let rms = op.norm == NormKind::Rms;
        if self.target.style == Style::Unfused {
            let mut total: Option<View> = None;
            for (table, ids) in op.tables.iter().zip(&op.ids) {
                let own = self.shape_of(*ids)?;
                let picked = self.temporary(dtype, [own.as_slice(), &[columns]].concat())?;
                self.gather_into(&picked, *table, *ids, 0)?;
                total = Some(match total {
                    None => picked,
                    Some(total) => {
                        let sum = self.temporary(dtype, shape.clone())?;
                        self.pointwise(&sum, "x + y", &[&total, &picked])?;
                        sum
                    }
                });
            }
            let total = total.ok_or("there are no tables")?;
            let sum = self.result(sum)?;
            self.copy(&sum, &total.expand(&shape))?;
            let norm = Norm::plain(rms, sum.place, weight.place, norm_bias, op.eps.0);
            let result = self.result(result)?;
            return self.norm(result.place, &norm, rows(&sum, columns), columns, named(dtype)?);
        }
        // The kernel takes ids of one type.
        if ids.iter().any(|own| own.dtype != ids[0].dtype) {
            for own in &mut ids {
                let wide = self.temporary(DType::I64, own.shape.clone())?;
                self.pointwise(&wide, "x", &[own])?;
                *own = wide;
            }
        }
        let sum = if self.is_used(sum) { Some(self.result(sum)?.place) } else { None };
        let result = self.result(result)?;
        let (by_warp, values) = norm_shape(columns);
        let source = Source::new(NORM, "embedding_norm")
            .with("ELEMENT", named(dtype)?)
            .with("I", named(ids[0].dtype)?)
            .with("TABLES", tables.len())
            .with("NORM", if rms { 2usize } else { 1 })
            .with("NORM_BIAS", norm_bias.is_some())
            .with("SUM", sum.is_some())
            .with("VALUES", values)
            .with("WARP", by_warp);
        let mut strides = vec![vec![0; rows_shape.len()]];
        strides.extend(ids.iter().map(|own| own.expand(rows_shape).strides));
        let three = |places: Vec<Argument>| places.into_iter().chain(std::iter::repeat(Argument::Null)).take(3);
        let mut arguments = vec![Argument::At(result.place), Argument::optional(sum)];
        arguments.extend(three(tables.iter().map(|table| Argument::At(table.place)).collect()));
        arguments.extend(three(ids.iter().map(|own| Argument::At(own.place)).collect()));
        let count: usize = rows_shape.iter().product();
        arguments.extend([
            Argument::At(weight.place),
            Argument::optional(norm_bias),
            Argument::long(count),
            Argument::int(columns)?,
            Argument::float(op.eps.0),
            strided(rows_shape, &strides)?,
        ]);
        arguments.extend((0..3).map(|at| Argument::long(tables.get(at).map_or(0, |table| table.shape[0]))));
        let grid = norm_grid(count, by_warp, self.target.multiprocessors)?;
        self.launch(source, grid, arguments);
        Ok(())
    }

    pub(super) fn rotary_append(&mut self, results: &[ValueId], op: &RotaryAppend) -> Result<(), String> {
        let &[turned, keys, values] = results else { return Err("it has three results".to_owned()) };
        let views = [op.q, op.k, op.v].map(|value| self.view(value));
        let [q, k, v] =
            views.map(|view| view.and_then(|x| if x.rows().is_some() { Ok(x) } else { self.without_gaps(x) }));
        let (q, k, v) = (q?, k?, v?);
        let (cos, sin) = (self.whole(op.cos)?, self.whole(op.sin)?);
        let [batch, length] = [q.shape[0], q.shape[1]];
        let (size, value_size) = (k.shape[2] / op.kv_heads, v.shape[2] / op.kv_heads);
        let heads_of = |x: &View, size: usize| View {
            shape: vec![batch, op.kv_heads, length, size],
            strides: vec![0; 4],
            ..x.clone()
        };
        let key_cache = self.cache(op.past_key, Some(keys), &heads_of(&k, size))?;
        let value_cache = self.cache(op.past_value, Some(values), &heads_of(&v, value_size))?;
        let past = key_cache.shape[2] - length;
        let turned = self.result(turned)?;
        let capacity = |cache: &View, size: usize| cache.strides[1].checked_div(size).unwrap_or(0);
        let row = |x: &View| x.rows().unwrap_or(x.shape[2]);
        let turn = |source: Source| Ok::<_, String>(source.with("ELEMENT", named(q.dtype)?));
        let interleaved = op.interleaved.0;
        if self.target.style == Style::Fused && capacity(&key_cache, size) == capacity(&value_cache, value_size) {
            let source = turn(Source::new(ROTARY, "rotary_append"))?.with("INTERLEAVED", interleaved);
            let places = [&turned, &key_cache, &value_cache, &q, &k, &v, &cos, &sin];
            let mut arguments: Vec<Argument> = places.iter().map(|x| Argument::At(x.place)).collect();
            for n in [batch, length, op.heads, op.kv_heads, size, value_size, cos.shape[2]] {
                arguments.push(Argument::int(n)?);
            }
            arguments.extend([row(&q), row(&k), row(&v), row(&turned)].map(Argument::long));
            for n in [cos.shape[0], past, capacity(&key_cache, size)] {
                arguments.push(Argument::int(n)?);
            }
            // Queries, keys and values by blocks of their own.
            let Grid { blocks: [x, ..], .. } = elements(batch * length * op.heads * size.max(value_size))?;
            self.launch(source, grid_of([x as usize, 3, 1], 256)?, arguments);
            return Ok(());
        }
        self.turn(&turned, &q, &cos, &sin, op.heads, op.interleaved.0)?;
        let turned_keys = self.temporary(k.dtype, k.shape.clone())?;
        self.turn(&turned_keys, &k, &cos, &sin, op.kv_heads, op.interleaved.0)?;
        for (cache, new, size) in [(&key_cache, &turned_keys, size), (&value_cache, &v, value_size)] {
            let new = self.split_heads(new.clone(), op.kv_heads)?;
            debug_assert_eq!(new.shape[3], size);
            self.copy(&cache.slice(2, past, past + length), &new)?;
        }
        Ok(())
    }
}

/// The rows of a tensor.
fn rows(x: &View, columns: usize) -> usize {
    x.elements().checked_div(columns).unwrap_or(0)
}
