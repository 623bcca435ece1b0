//! Tensors in a GPU's memory.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
use planish_eval::Tensor;
use planish_ir::DType;

use crate::driver;

/// The first GPU, with a stream in whose order everything runs.
#[derive(Clone)]
pub(super) struct Gpu {
    pub(super) stream: Arc<CudaStream>,
}

impl Gpu {
    /// # Errors
    /// When the driver fails. Whether there is a driver and a device is asked before.
    pub(super) fn first() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        // SAFETY: what a stream writes is read by others only when that is done: sessions and copies wait for it.
        unsafe { context.disable_event_tracking() };
        driver::keep_pool_memory(&context)?;
        Ok(Self { stream: context.new_stream()? })
    }

    /// Memory for a tensor, with any contents.
    pub(super) fn allocate(&self, dtype: DType, shape: Vec<usize>) -> Result<DeviceTensor, String> {
        let bytes = shape.iter().try_fold(dtype.size(), |n, size| n.checked_mul(*size)).ok_or("its size overflows")?;
        // SAFETY: the elements are bytes, of which each is valid. CUDA has no memory of 0 bytes.
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) }.map_err(|e| e.to_string())?;
        Ok(DeviceTensor { dtype, shape, bytes, memory })
    }

    /// A copy of a tensor.
    pub(super) fn copy(&self, tensor: &Tensor) -> Result<DeviceTensor, String> {
        let mut copy = self.allocate(tensor.dtype(), tensor.shape().to_vec())?;
        if copy.bytes > 0 {
            let bytes = tensor.to_bytes();
            self.stream.memcpy_htod(&bytes, &mut copy.memory).map_err(|e| e.to_string())?;
            // The GPU may read the bytes later than the call returns.
            self.wait()?;
        }
        Ok(copy)
    }

    /// Waits until everything has run.
    pub(super) fn wait(&self) -> Result<(), String> {
        self.stream.synchronize().map_err(|e| e.to_string())
    }
}

/// A tensor in a GPU's memory.
pub(crate) struct DeviceTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
    memory: CudaSlice<u8>,
}

impl DeviceTensor {
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its address in the GPU's memory, which the host cannot read.
    pub(super) fn address(&self) -> *mut u8 {
        let (address, _in_order) = self.memory.device_ptr(self.memory.stream());
        std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
    }

    /// The bytes of its elements.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A copy of its elements in the host's memory, when all that writes the tensor has run.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, DriverError> {
        let mut bytes = self.memory.stream().clone_dtoh(&self.memory)?;
        self.memory.stream().synchronize()?;
        bytes.truncate(self.bytes);
        Ok(bytes)
    }

    /// Copies elements from the host's memory, in the order of the stream. They stay as they are until the copy is done.
    pub(super) fn fill(&mut self, from: &[u8]) -> Result<(), DriverError> {
        let stream = self.memory.stream().clone();
        if from.is_empty() { Ok(()) } else { stream.memcpy_htod(from, &mut self.memory) }
    }

    /// Copies elements to the host's memory, in the order of the stream.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<(), DriverError> {
        let elements = self.memory.slice(..to.len());
        if to.is_empty() { Ok(()) } else { self.memory.stream().memcpy_dtoh(&elements, to) }
    }

    /// A copy in the host's memory, when all that writes the tensor has run.
    pub(crate) fn to_tensor(&self) -> Option<Tensor> {
        let bytes = self.to_bytes().ok()?;
        Tensor::from_bytes(self.dtype, self.shape.clone(), &bytes)
    }

    /// Some of the outermost slices; `None` where there is no such slice or no memory.
    pub(crate) fn take_rows(&self, rows: &[usize]) -> Option<Self> {
        let (count, sizes) = self.shape.split_first()?;
        if rows.iter().any(|row| row >= count) {
            return None;
        }
        let size = self.bytes.checked_div(*count)?;
        let gpu = Gpu { stream: self.memory.stream().clone() };
        let mut taken = gpu.allocate(self.dtype, [&[rows.len()], sizes].concat()).ok()?;
        for (index, row) in rows.iter().enumerate().filter(|_| size > 0) {
            let from = self.memory.try_slice(row * size..(row + 1) * size)?;
            let mut to = taken.memory.try_slice_mut(index * size..(index + 1) * size)?;
            gpu.stream.memcpy_dtod(&from, &mut to).ok()?;
        }
        // Other sessions have other streams.
        gpu.wait().ok()?;
        Some(taken)
    }
}
