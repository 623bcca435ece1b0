//! Keys and values in buffers with room, which graphs of the form `--cache in-place` append to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort::memory::Allocator;
use planish_eval::Tensor;
use planish_ir::PartInterface;

use crate::Port;

/// The entry of a model's metadata that says how its attention appends to the cache, and ...
pub const CACHE_ENTRY: &str = "planish.cache";
/// ... what it says where attention writes into the memory of the past.
pub const IN_PLACE: &str = "in-place";

/// The places of the inputs of a cache, each with that of the output that continues it.
pub(super) fn pairs(interface: &PartInterface, inputs: &[Port], outputs: &[Port]) -> Vec<(usize, usize)> {
    let pair = |(at, input): (usize, &Port)| {
        let entry = interface.input(&input.name).cache().filter(|entry| !entry.kind.is_state())?;
        let name = interface.present(entry)?;
        Some((at, outputs.iter().position(|output| output.name == name)?))
    };
    inputs.iter().enumerate().filter_map(pair).collect()
}

/// Keys or values, f32[batch, heads, keys, size], in a buffer with room for more.
#[derive(Clone)]
pub(crate) struct OrtCache {
    buffer: Arc<Buffer>,
    shape: [usize; 4],
}

struct Buffer {
    /// [batch, heads, capacity, size].
    tensor: Mutex<ort::value::Tensor<f32>>,
    capacity: usize,
    /// The keys that are in the buffer. Values that share it have fewer or as many; only one with as many can be continued
    /// in place.
    filled: AtomicUsize,
}

/// How many keys a buffer for so many has room for.
fn room(keys: usize) -> usize {
    keys.saturating_add((keys / 2).max(64))
}

impl OrtCache {
    /// A copy of elements, [batch, heads, keys, size], with room for `capacity` keys.
    fn new(shape: [usize; 4], elements: &[f32], capacity: usize) -> Result<Self, String> {
        let [batch, heads, keys, size] = shape;
        let mut tensor = ort::value::Tensor::<f32>::new(&Allocator::default(), [batch, heads, capacity, size])
            .map_err(|error| error.to_string())?;
        let all = tensor.extract_tensor_mut().1;
        all.fill(0.0);
        let from = elements.chunks((keys * size).max(1));
        all.chunks_mut((capacity * size).max(1))
            .zip(from)
            .for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
        let filled = AtomicUsize::new(keys);
        Ok(Self { buffer: Arc::new(Buffer { tensor: Mutex::new(tensor), capacity, filled }), shape })
    }

    /// A copy of a tensor with room for `new` keys at least.
    pub(super) fn of(shape: &[usize], elements: &[f32], new: usize) -> Result<Self, String> {
        let &[batch, heads, keys, size] = shape else {
            return Err(format!("a cache is f32{shape:?}, expected [batch, heads, keys, size]"));
        };
        Self::new([batch, heads, keys, size], elements, room(keys.saturating_add(new)))
    }

    /// The same keys with room for `new` ones after them: in the same memory, if no other value has keys there.
    pub(super) fn with_room(&self, new: usize) -> Result<Self, String> {
        let keys = self.shape[2];
        let free = self.buffer.filled.load(Ordering::Acquire) == keys;
        match free && keys.checked_add(new).is_some_and(|keys| keys <= self.buffer.capacity) {
            true => Ok(self.clone()),
            false => self.copied(new),
        }
    }

    /// A copy of the keys, with room for `new` ones after them.
    pub(super) fn copied(&self, new: usize) -> Result<Self, String> {
        Self::of(&self.shape, &self.elements(), new)
    }

    /// Whether both are in one buffer.
    pub(super) fn is_in_memory_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }

    /// The same memory with `new` keys more, which a run has written.
    pub(super) fn extended(mut self, new: usize) -> Self {
        self.shape[2] += new;
        self.buffer.filled.store(self.shape[2], Ordering::Release);
        self
    }

    /// Only the first keys. If no other value is in the buffer, the next ones are written after these.
    pub(crate) fn first_keys(mut self, keys: usize) -> Self {
        self.shape[2] = keys;
        if let Some(buffer) = Arc::get_mut(&mut self.buffer) {
            *buffer.filled.get_mut() = keys;
        }
        self
    }

    /// The buffer, for a run.
    pub(super) fn buffer(&self) -> MutexGuard<'_, ort::value::Tensor<f32>> {
        self.buffer.tensor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// A copy of the keys without the room after them.
    fn elements(&self) -> Vec<f32> {
        let [_, _, keys, size] = self.shape;
        let buffer = self.buffer();
        let heads = buffer.extract_tensor().1.chunks((self.buffer.capacity * size).max(1));
        heads.flat_map(|head| &head[..keys * size]).copied().collect()
    }

    /// A copy as a tensor.
    pub(crate) fn to_tensor(&self) -> Option<Tensor> {
        Tensor::new(self.shape.to_vec(), self.elements())
    }

    /// Some of the outermost slices, with as much room; `None` where there is no such slice.
    pub(crate) fn take_rows(&self, rows: &[usize]) -> Option<Self> {
        let [batch, heads, keys, size] = self.shape;
        let taken = crate::value::slices(&self.elements(), rows, batch)?;
        Self::new([rows.len(), heads, keys, size], &taken, self.buffer.capacity).ok()
    }
}
