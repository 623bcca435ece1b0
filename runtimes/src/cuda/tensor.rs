//! Tensors in the memory of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_eval::Tensor;
use planish_ir::DType;

use super::device::{Buffer, Device};

/// A tensor in the memory of a device, without gaps but for the room after the keys of a cache.
#[derive(Clone)]
pub(crate) struct DeviceTensor {
    pub(super) device: Arc<dyn Device>,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) memory: Buffer,
    pub(super) cache: Option<Cache>,
}

/// The memory of keys or values, [batch, heads, keys, size], with room for more.
#[derive(Clone)]
pub(super) struct Cache {
    /// The keys that there is room for.
    pub(super) capacity: usize,
    /// The keys that are in the memory. Tensors that share it have fewer or as many; only one with as many can be
    /// continued in place.
    pub(super) filled: Arc<AtomicUsize>,
}

impl Cache {
    pub(super) fn new(capacity: usize, keys: usize) -> Self {
        Self { capacity, filled: Arc::new(AtomicUsize::new(keys)) }
    }

    /// Whether no tensor has keys after these.
    pub(super) fn is_free_after(&self, keys: usize) -> bool {
        self.filled.load(Ordering::Relaxed) == keys
    }
}

impl DeviceTensor {
    /// A copy of a tensor.
    pub(super) fn upload(device: &Arc<dyn Device>, tensor: &Tensor) -> Result<Self, String> {
        let bytes = tensor.to_bytes();
        let memory = device.allocate(bytes.len())?;
        device.upload(memory.address(), &bytes)?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        Ok(Self { device: device.clone(), dtype, shape, memory, cache: None })
    }

    /// A copy of keys or values, [batch, heads, keys, size], in memory with room for more.
    pub(super) fn upload_cache(device: &Arc<dyn Device>, tensor: &Tensor, capacity: usize) -> Result<Self, String> {
        let &[batch, heads, keys, size] = tensor.shape() else { return Self::upload(device, tensor) };
        let row = size * tensor.dtype().size();
        let memory = device.allocate(batch * heads * capacity * row)?;
        let cache = Some(Cache::new(capacity, keys));
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        let copy = Self { device: device.clone(), dtype, shape, memory, cache };
        copy.fill(&tensor.to_bytes())?;
        Ok(copy)
    }

    /// Where its memory begins.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes of each piece that has no gaps, and from one to the next.
    fn pieces(&self) -> (usize, usize, usize) {
        let all = self.shape.iter().product::<usize>() * self.dtype.size();
        match (&self.cache, &self.shape[..]) {
            (Some(cache), [batch, heads, keys, size]) if all > 0 => {
                let row = size * self.dtype.size();
                (batch * heads, keys * row, cache.capacity * row)
            }
            _ => (1, all, all),
        }
    }

    /// A copy in the host's memory, when all work that was given is done.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let (count, bytes, step) = self.pieces();
        // One copy of all memory takes less time than a copy of each piece.
        let mut all = vec![0; if bytes > 0 { (count - 1) * step + bytes } else { 0 }];
        self.device.download(self.memory.address(), &mut all)?;
        if step > bytes {
            for at in 1..count {
                all.copy_within(at * step..at * step + bytes, at * bytes);
            }
            all.truncate(count * bytes);
        }
        Ok(all)
    }

    /// Copies elements from the host's memory.
    pub(super) fn fill(&self, from: &[u8]) -> Result<(), String> {
        let (_, bytes, step) = self.pieces();
        for (at, piece) in from.chunks(bytes.max(1)).enumerate() {
            self.device.upload(self.memory.address() + (at * step) as u64, piece)?;
        }
        Ok(())
    }

    /// Fills the keys or values of a cache after the first ones with bytes that are no numbers.
    pub(super) fn poison_after(&self, keys: usize) -> Result<(), String> {
        let (count, bytes, step) = self.pieces();
        let first = bytes / self.shape[2].max(1) * keys;
        let start = self.memory.address() + first as u64;
        (0..count).try_for_each(|at| self.device.poison(start + (at * step) as u64, bytes.saturating_sub(first)))
    }

    /// As [`Self::to_bytes`], as a tensor.
    pub(crate) fn to_tensor(&self) -> Result<Tensor, String> {
        let tensor = Tensor::from_bytes(self.dtype, self.shape.clone(), &self.to_bytes()?);
        tensor.ok_or_else(|| format!("there are no tensors of {}", self.dtype))
    }

    /// Only the first keys of a cache, with the room after them; `None` if the tensor is not a cache. If no other tensor
    /// shares the memory, the next keys are written after these.
    pub(crate) fn first_keys(mut self, keys: usize) -> Option<Self> {
        let cache = self.cache.as_mut()?;
        if let Some(filled) = Arc::get_mut(&mut cache.filled) {
            *filled.get_mut() = keys;
        }
        self.shape[2] = keys;
        Some(self)
    }

    /// Some of the outermost slices; `None` where there is no such slice or no memory.
    pub(crate) fn take_rows(&self, rows: &[usize]) -> Option<Self> {
        let (count, sizes) = self.shape.split_first()?;
        if rows.iter().any(|row| row >= count) {
            return None;
        }
        let (pieces, bytes, step) = self.pieces();
        // The room after keys is taken along.
        let slice = if self.cache.is_some() { pieces * step } else { bytes }.checked_div(*count)?;
        let memory = self.device.allocate(slice * rows.len()).ok()?;
        for (to, from) in rows.iter().enumerate() {
            let [to, from] =
                [(memory.address(), to), (self.memory.address(), *from)].map(|(a, row)| a + (row * slice) as u64);
            self.device.copy(to, from, slice).ok()?;
        }
        let shape = [&[rows.len()], sizes].concat();
        // What has no bytes has no room either.
        let cache = self.cache.as_ref().filter(|_| slice > 0);
        let cache = cache.map(|cache| Cache::new(cache.capacity, self.shape[2]));
        Some(Self { device: self.device.clone(), dtype: self.dtype, shape, memory, cache })
    }
}
