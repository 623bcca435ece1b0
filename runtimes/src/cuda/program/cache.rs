//! The keys and values of caches, and rotary embedding.

use planish_ir::ValueId;
use planish_ir::ops::Rotary;

use super::build::Builder;
use super::elementwise::{elements, named};
use super::{Argument, Base, Continued, Place, View};
use crate::cuda::source::{ROTARY, Source};

impl Builder<'_> {
    /// All keys or values, [batch, kv heads, keys, size]: the past followed by the new ones. Where a result of the node
    /// has them, they are in its memory.
    pub(super) fn cached(
        &mut self,
        new: ValueId,
        past: Option<ValueId>,
        present: Option<ValueId>,
        heads: usize,
    ) -> Result<View, String> {
        let new = self.view(new)?;
        let is_cache = new.shape.len() == 4;
        let new = if is_cache { new } else { self.split_heads(new, heads)? };
        if past.is_none() && present.is_none() {
            return Ok(new);
        }
        let cache = self.cache(past, present, &new)?;
        let before = cache.shape[2] - new.shape[2];
        let is_even = new.shape[0] == 1 || new.strides[0] == new.shape[2] * new.strides[2];
        if is_cache || !is_even || new.strides[1] != new.shape[3] {
            self.copy(&cache.slice(2, before, cache.shape[2]), &new)?;
        } else {
            let source = Source::new(ROTARY, "append")
                .with("ELEMENT", named(new.dtype)?)
                .with("ROTATE", false)
                .with("INTERLEAVED", false);
            let [batch, _, length, size] = [0, 1, 2, 3].map(|axis| new.shape[axis]);
            let arguments = vec![
                Argument::At(cache.place),
                Argument::At(new.place),
                Argument::Null,
                Argument::Null,
                Argument::int(batch)?,
                Argument::int(length)?,
                Argument::int(heads)?,
                Argument::int(size)?,
                Argument::int(0)?,
                Argument::long(new.strides[2]),
                Argument::int(1)?,
                Argument::int(before)?,
                Argument::int(cache.strides[1] / size.max(1))?,
            ];
            self.launch(source, elements(batch * length * heads * size)?, arguments);
        }
        Ok(cache)
    }

    /// Memory for the past followed by new keys or values, with the past in it.
    pub(super) fn cache(
        &mut self,
        past: Option<ValueId>,
        present: Option<ValueId>,
        new: &View,
    ) -> Result<View, String> {
        // A part of an input is no cache that new keys may go after.
        let input = past.and_then(|past| self.graph.inputs().iter().position(|input| *input == past));
        let past = past.map(|past| self.view(past)).transpose()?;
        let mut shape = new.shape.clone();
        shape[2] += past.as_ref().map_or(0, |past| past.shape[2]);
        let output = present.and_then(|present| self.output(present));
        let room = input.and_then(|input| self.caches.room.get(input).copied().flatten());
        // Nor is one that another result continues.
        let room = room.filter(|_| !self.is_continued(input));
        let cache = match (output, input, present) {
            (Some(output), Some(input), Some(present)) => {
                let room = room.filter(|room| room.free && room.capacity >= shape[2]);
                let capacity = room.map_or(shape[2] + self.caches.reserve, |room| room.capacity);
                let place = Place { base: Base::Output(output), offset: 0 };
                let all = [shape[0], shape[1], capacity, shape[3]];
                let cache = View::contiguous(place, new.dtype, all.to_vec()).slice(2, 0, shape[2]);
                self.define(present, cache.clone());
                self.continues(output, Continued { input: room.map(|_| input), capacity });
                // The new keys go after those of the past, in its memory.
                if room.is_some() {
                    return Ok(cache);
                }
                cache
            }
            (_, _, Some(present)) => self.result(present)?,
            _ => self.temporary(new.dtype, shape)?,
        };
        if let Some(past) = past {
            self.copy(&cache.slice(2, 0, past.shape[2]), &past)?;
        }
        Ok(cache)
    }

    pub(super) fn rotary(&mut self, result: ValueId, op: &Rotary) -> Result<(), String> {
        let x = self.view(op.x)?;
        let x = if x.rows().is_some() { x } else { self.without_gaps(x)? };
        let (cos, sin) = (self.whole(op.cos)?, self.whole(op.sin)?);
        let result = self.result(result)?;
        self.turn(&result, &x, &cos, &sin, op.heads, op.interleaved.0)
    }

    /// Rotates the heads of `x`, whose rows have no gaps.
    pub(super) fn turn(
        &mut self,
        to: &View,
        x: &View,
        cos: &View,
        sin: &View,
        heads: usize,
        interleaved: bool,
    ) -> Result<(), String> {
        let [batch, length, features] = [0, 1, 2].map(|axis| x.shape[axis]);
        let source = Source::new(ROTARY, "rotary").with("ELEMENT", named(x.dtype)?).with("INTERLEAVED", interleaved);
        let arguments = vec![
            Argument::At(to.place),
            Argument::At(x.place),
            Argument::At(cos.place),
            Argument::At(sin.place),
            Argument::int(batch)?,
            Argument::int(length)?,
            Argument::int(heads)?,
            Argument::int(features / heads)?,
            Argument::int(cos.shape[2])?,
            Argument::long(x.rows().unwrap_or(features)),
            Argument::long(features),
            Argument::int(cos.shape[0])?,
        ];
        self.launch(source, elements(batch * length * features)?, arguments);
        Ok(())
    }
}
