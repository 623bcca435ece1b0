//! Values of ONNX Runtime in the memory of a provider's device.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaEvent, CudaStream, DriverError, result, sys};
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::value::{DynTensor, TensorElementType};
use planish_eval::Tensor;
use planish_ir::DType;

use crate::ort::tensor::{OrtValue, element_type};

/// The memory of the device that a session runs on.
pub(crate) struct DeviceMemory {
    /// One thread at a time: ONNX Runtime's CUDA allocator is not safe for several.
    allocator: Mutex<Allocator>,
    copies: Copies,
}

/// How the memory is read and written.
pub(super) enum Copies {
    /// In the order of a stream, on which ONNX Runtime runs the session too.
    Cuda(Arc<CudaStream>),
    /// By the host: a device of tests.
    #[cfg(test)]
    Host,
}

impl Copies {
    fn device(&self) -> AllocationDevice<'static> {
        match self {
            Self::Cuda(_) => AllocationDevice::CUDA,
            #[cfg(test)]
            Self::Host => AllocationDevice::CPU,
        }
    }
}

/// A part of a value that is copied: from which byte, to which byte, and how many.
pub(super) type Slice = (usize, usize, usize);

impl DeviceMemory {
    /// The memory of the device of a session.
    pub(super) fn of(session: &Session, copies: Copies) -> Result<Self, ort::Error> {
        let allocator = Allocator::new(session, info(&copies)?)?;
        Ok(Self { allocator: Mutex::new(allocator), copies })
    }

    /// What outputs are bound to.
    pub(super) fn info(&self) -> Result<MemoryInfo<'static>, ort::Error> {
        info(&self.copies)
    }

    /// Memory for a tensor, with any contents. ONNX Runtime has no texts on a device.
    pub(super) fn allocate(self: &Arc<Self>, dtype: DType, shape: Vec<usize>) -> Result<OrtValue, String> {
        let element: TensorElementType = element_type(dtype).ok_or_else(|| format!("no device has {dtype}"))?;
        let allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor = DynTensor::new(&allocator, element, shape).map_err(|e| e.to_string())?;
        OrtValue::on_device(tensor.into_dyn(), self.clone())
    }

    /// A copy of a tensor.
    pub(super) fn copy(self: &Arc<Self>, tensor: &Tensor) -> Result<OrtValue, String> {
        let value = self.allocate(tensor.dtype(), tensor.shape().to_vec())?;
        self.write(&value, &tensor.to_bytes()).and_then(|()| self.wait()).map_err(|e| e.to_string())?;
        Ok(value)
    }

    /// Whether a value of ONNX Runtime is in this memory.
    pub(super) fn holds(&self, value: &MemoryInfo<'_>) -> bool {
        value.allocation_device() == self.copies.device()
    }

    /// Copies bytes into a value, in the order of the stream: the bytes stay where they are until that has come there.
    pub(super) fn write(&self, value: &OrtValue, bytes: &[u8]) -> Result<(), DriverError> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &self.copies {
            Copies::Cuda(stream) => {
                stream.context().bind_to_thread()?;
                // SAFETY: the value has as many bytes, and the caller waits before the host's are freed.
                unsafe { result::memcpy_htod_async(value.address(), bytes, stream.cu_stream()) }
            }
            // SAFETY: the value has as many bytes of the host's memory.
            #[cfg(test)]
            Copies::Host => unsafe {
                pointer(value.address()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                Ok(())
            },
        }
    }

    /// Copies a value into as many bytes, in the order of the stream: they have the value when that has come there.
    pub(super) fn read(&self, value: &OrtValue, bytes: &mut [u8]) -> Result<(), DriverError> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &self.copies {
            Copies::Cuda(stream) => {
                stream.context().bind_to_thread()?;
                // SAFETY: as above.
                unsafe { result::memcpy_dtoh_async(bytes, value.address(), stream.cu_stream()) }
            }
            // SAFETY: the value has as many bytes of the host's memory.
            #[cfg(test)]
            Copies::Host => unsafe {
                pointer(value.address()).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
                Ok(())
            },
        }
    }

    /// A new value of slices of another one.
    pub(super) fn of_slices(
        self: &Arc<Self>,
        value: &OrtValue,
        shape: Vec<usize>,
        slices: impl Iterator<Item = Slice>,
    ) -> Result<OrtValue, String> {
        let taken = self.allocate(value.dtype(), shape)?;
        for (from, to, bytes) in slices.filter(|(_, _, bytes)| *bytes > 0) {
            let (from, to) = (value.address() + from as u64, taken.address() + to as u64);
            match &self.copies {
                Copies::Cuda(stream) => {
                    stream.context().bind_to_thread().map_err(|e| e.to_string())?;
                    // SAFETY: both are in the memory of their values.
                    unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
                        .map_err(|e| e.to_string())?;
                }
                // SAFETY: as above.
                #[cfg(test)]
                Copies::Host => unsafe { pointer(from).copy_to_nonoverlapping(pointer(to), bytes) },
            }
        }
        // Other sessions have other streams.
        self.wait().map_err(|e| e.to_string())?;
        Ok(taken)
    }

    /// Waits until all that the stream was given is done.
    pub(super) fn wait(&self) -> Result<(), DriverError> {
        match &self.copies {
            Copies::Cuda(stream) => stream.synchronize(),
            #[cfg(test)]
            Copies::Host => Ok(()),
        }
    }

    /// A point in the work of the device; `None` where it has no clock.
    pub(super) fn event(&self) -> Result<Option<CudaEvent>, DriverError> {
        match &self.copies {
            Copies::Cuda(stream) => stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).map(Some),
            #[cfg(test)]
            Copies::Host => Ok(None),
        }
    }
}

fn info(copies: &Copies) -> Result<MemoryInfo<'static>, ort::Error> {
    MemoryInfo::new(copies.device(), 0, AllocatorType::Device, MemoryType::Default)
}

#[cfg(test)]
fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap())
}
