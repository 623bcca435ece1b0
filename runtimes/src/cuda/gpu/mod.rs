//! GPUs of NVIDIA, through the driver, NVRTC and cublasLt, which are loaded when they are first needed.

mod libraries;
mod nvrtc;
mod product;
mod transfer;

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute_enum};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DriverError, result,
};
use rayon::prelude::*;

use super::SharedDevice;
use super::device::{Buffer, Device, Event, Grid, HostBuffer, HostMemory, KernelId, Memory, Product, Recording};
use super::kernel_table::KernelTable;
use super::source::Source;
use crate::{Description, Unavailable, driver};

/// What a user without a GPU can do.
const OTHERWISE: &str = "verify, run, bench and generate take --runtime cuda-emulator, which runs the same kernels on the \
                         processor, and --runtime reference, which runs the graph";

/// Dynamic shared memory that a kernel may have without asking.
const SHARED: u32 = 48 << 10;

/// The GPU that the runtime uses.
///
/// # Errors
/// When a library or a GPU is missing.
pub(super) fn device(runtime: &'static str) -> Result<Arc<dyn Device>, Unavailable> {
    static GPU: SharedDevice = SharedDevice::new();
    check(runtime)?;
    GPU.get(|| {
        let gpu = Gpu::new().map_err(|reason| Unavailable {
            runtime,
            reason,
            looked: Vec::new(),
            remedy: "see whether `nvidia-smi` lists the GPU, and whether it has free memory".to_owned(),
        })?;
        Ok(Arc::new(gpu))
    })
}

/// Whether the driver, a GPU, NVRTC and cublasLt are here.
///
/// # Errors
/// What is missing.
pub(super) fn check(runtime: &'static str) -> Result<Description, Unavailable> {
    let gpu = driver::devices(runtime, OTHERWISE)?.swap_remove(0);
    if gpu.capability < 80 {
        return Err(Unavailable {
            runtime,
            reason: format!("{} has compute capability {}.{}", gpu.name, gpu.capability / 10, gpu.capability % 10),
            looked: Vec::new(),
            remedy: format!("the kernels need a GPU of compute capability 8.0 (Ampere) or newer; {OTHERWISE}"),
        });
    }
    let location = libraries::load(runtime)?;
    let (major, minor) = nvrtc::version();
    if let Some(reason) = too_old(driver::version(), major) {
        let remedy = format!("install a newer driver; {OTHERWISE}");
        return Err(Unavailable { runtime, reason, looked: Vec::new(), remedy });
    }
    Ok(Description { product: "planish", version: format!("CUDA {major}.{minor} on {}", gpu.name), location })
}

/// Why a driver, by the version of CUDA that it has, cannot run what NVRTC of a major version compiles.
fn too_old((major, minor): (i32, i32), nvrtc: i32) -> Option<String> {
    if (major, minor) < (12, 8) {
        return Some(format!("the driver has CUDA {major}.{minor}, and the runtime needs 12.8 or newer"));
    }
    (major < nvrtc).then(|| format!("the driver has CUDA {major}.{minor}, and NVRTC compiles for CUDA {nvrtc}"))
}

/// Loads NVRTC, which needs no GPU.
///
/// # Errors
/// When it is missing.
pub(super) fn nvrtc_alone() -> Result<(), Unavailable> {
    libraries::nvrtc("cuda").map(drop)
}

/// Compiles a kernel, and returns what the compiler says of its registers and its memory.
///
/// # Errors
/// What the compiler said, if it failed.
pub(super) fn compile_log(source: &Source, architecture: &str) -> Result<String, String> {
    nvrtc::compile(source, architecture).map(|compiled| compiled.log)
}

/// Compiles a kernel into the user's folder of caches, where it is not there.
///
/// # Errors
/// What the compiler said, if it failed.
pub(super) fn compile_kept(source: &Source, architecture: &str) -> Result<(), String> {
    nvrtc::compiled(source, architecture).map(drop)
}

/// A GPU, with a stream in whose order everything runs.
struct Gpu {
    name: String,
    /// Its architecture for NVRTC, e.g. `sm_90`.
    architecture: String,
    multiprocessors: usize,
    /// The most bytes of shared memory of a block.
    shared_memory: usize,
    /// The bytes of shared memory of a multiprocessor.
    multiprocessor_shared_memory: usize,
    stream: Arc<CudaStream>,
    kernels: Mutex<KernelTable<Kernel>>,
    products: Mutex<product::Products>,
}

struct Kernel {
    function: CudaFunction,
    /// The dynamic shared memory that it may have.
    shared: u32,
}

/// What the driver said.
fn message(error: DriverError) -> String {
    error.to_string()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    fn new() -> Result<Self, String> {
        let context = CudaContext::new(0).map_err(message)?;
        // SAFETY: everything runs in the order of one stream; copies to the host wait for it.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(message)?;
        let (major, minor) = context.compute_capability().map_err(message)?;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let multiprocessors = context.attribute(attribute).map_err(message)?;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = context.attribute(attribute).map_err(message)?;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
        let all_shared = context.attribute(attribute).map_err(message)?;
        Ok(Self {
            shared_memory: usize::try_from(shared).unwrap_or(0),
            multiprocessor_shared_memory: usize::try_from(all_shared).unwrap_or(0),
            name: context.name().map_err(message)?,
            architecture: format!("sm_{major}{minor}"),
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
            products: Mutex::new(product::Products::new(&stream)?),
            stream,
            kernels: Mutex::default(),
        })
    }

    /// Loads a kernel.
    fn kernel(&self, source: &Source, cubin: Vec<u8>) -> Result<Kernel, String> {
        let module = self.stream.context().load_module(cudarc::nvrtc::Ptx::from_binary(cubin));
        let function = module.and_then(|module| module.load_function(&source.function()));
        let function = function.map_err(|e| format!("the kernel {} cannot be loaded: {e}", source.kernel))?;
        Ok(Kernel { function, shared: SHARED })
    }

    /// Makes the calls that follow in this thread those of the GPU.
    fn bind(&self) -> Result<(), String> {
        self.stream.context().bind_to_thread().map_err(message)
    }
}

/// Memory of a GPU. It is freed in the order of the stream.
struct GpuMemory {
    memory: CudaSlice<u8>,
    address: u64,
    bytes: usize,
}

impl Memory for GpuMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> usize {
        // The slice owns the memory.
        debug_assert!(self.memory.len() >= self.bytes);
        self.bytes
    }
}

impl Device for Gpu {
    fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    fn shared_memory(&self) -> usize {
        self.shared_memory
    }

    fn multiprocessor_shared_memory(&self) -> usize {
        self.multiprocessor_shared_memory
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, String> {
        // SAFETY: the elements are bytes, of which each is valid. CUDA has no memory of 0 bytes.
        let memory = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        let memory = memory.map_err(|e| format!("{} has no {bytes} bytes of free memory: {e}", self.name))?;
        let (address, in_order) = memory.device_ptr(&self.stream);
        drop(in_order);
        Ok(Arc::new(GpuMemory { memory, address, bytes }))
    }

    fn pinned(&self, bytes: usize) -> Result<Box<dyn HostMemory>, String> {
        transfer::Pinned::new(&self.stream, bytes).map(|memory| Box::new(memory) as Box<dyn HostMemory>)
    }

    fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers name memory of this device with room for the bytes. The driver copies bytes of pageable memory
        // before it returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }.map_err(message)
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        if to.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers name memory of this device with these bytes; `to` lives until the copy is done.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) }.map_err(message)?;
        self.wait()
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostBuffer, String> {
        let memory = LockedMemory::new(&self.stream, bytes)?;
        // SAFETY: the memory is the host's, and was just filled.
        Ok(unsafe { HostBuffer::new(Arc::new(memory)) })
    }

    fn copy_from_host(&self, to: u64, from: &HostBuffer, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers name memory of this device with room for the bytes; those of the host are page-locked, and stay as
        // they are until the copy is done.
        let from = unsafe { std::slice::from_raw_parts(from.pointer(0, bytes), bytes) };
        // SAFETY: as above.
        unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) }.map_err(message)
    }

    fn copy_to_host(&self, to: &HostBuffer, from: u64, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers name memory of this device with these bytes; nothing reads those of the host until the copy is done.
        let to = unsafe { std::slice::from_raw_parts_mut(to.pointer(0, bytes), bytes) };
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) }.map_err(message)
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: callers name memory of this device, or pinned memory, with these bytes; addresses of both are of one space.
        unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream.cu_stream()) }.result().map_err(message)
    }

    fn prepare(&self, sources: &[Source]) -> Result<Vec<KernelId>, String> {
        locked(&self.kernels).prepare(sources, |new| {
            let compiled = new.par_iter().map(|source| nvrtc::compiled(source, &self.architecture));
            let compiled: Vec<_> = compiled.collect();
            new.iter().zip(compiled).map(|(source, cubin)| self.kernel(source, cubin?)).collect()
        })
    }

    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[&[u64]]) -> Result<(), String> {
        self.bind()?;
        let mut kernels = locked(&self.kernels);
        let kernel = kernels.get(kernel)?;
        if grid.shared > kernel.shared {
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(grid.shared).map_err(|e| e.to_string())?;
            kernel.function.set_attribute(attribute, bytes).map_err(message)?;
            kernel.shared = grid.shared;
        }
        let mut parameters: Vec<*mut c_void> =
            arguments.iter().map(|argument| argument.as_ptr().cast_mut().cast()).collect();
        // SAFETY: the arguments are those of the kernel, which reads them before the call returns; addresses among them are of
        // this device.
        let launched = unsafe {
            result::launch_kernel(
                kernel.function.cu_function(),
                grid.blocks.into(),
                (grid.threads, 1, 1),
                grid.shared,
                self.stream.cu_stream(),
                &mut parameters,
            )
        };
        launched.map_err(message)
    }

    fn multiply(&self, product: &Product) -> Result<(), String> {
        self.bind()?;
        locked(&self.products).multiply(product, &self.stream)
    }

    fn wait(&self) -> Result<(), String> {
        self.stream.synchronize().map_err(message)
    }

    fn record(&self, give: &mut dyn FnMut() -> Result<(), String>) -> Result<Option<Box<dyn Recording>>, String> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        if self.stream.begin_capture(mode).is_err() {
            return Ok(None);
        }
        let given = give();
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        given?;
        let graph = graph.map_err(message)?.map(|graph| Box::new(Recorded(graph)) as Box<dyn Recording>);
        Ok(graph)
    }

    fn event(&self) -> Result<Option<Box<dyn Event>>, String> {
        let event = self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).map_err(message)?;
        Ok(Some(Box::new(Point(event))))
    }

    fn start(&self, _: Duration) -> Result<Option<Box<dyn Event>>, String> {
        self.event()
    }
}

/// Page-locked memory of the host. It is freed when the stream's work is done.
struct LockedMemory {
    stream: Arc<CudaStream>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory, which is written and read by callers that wait for the device.
unsafe impl Send for LockedMemory {}
// SAFETY: as above.
unsafe impl Sync for LockedMemory {}

impl LockedMemory {
    fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, String> {
        stream.context().bind_to_thread().map_err(message)?;
        // SAFETY: CUDA has no memory of 0 bytes; the flags are none.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) };
        let start = start.map_err(|e| format!("the host has no {bytes} bytes of page-locked memory: {e}"))?;
        let start = start.cast::<u8>();
        // SAFETY: the memory has this size.
        unsafe { start.write_bytes(0xFF, bytes.max(1)) };
        Ok(Self { stream: stream.clone(), start, bytes })
    }
}

impl Memory for LockedMemory {
    fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // Copies of the device may be under way. An error is that of earlier work, which the next wait reports.
        let _ = self.stream.synchronize();
        // SAFETY: it was allocated by `malloc_host`, and nothing uses it any more.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

/// A CUDA graph.
struct Recorded(CudaGraph);

impl Recording for Recorded {
    fn replay(&self) -> Result<(), String> {
        self.0.launch().map_err(message)
    }
}

/// A point in the order of the stream.
struct Point(CudaEvent);

impl Event for Point {
    fn since(&self, earlier: &dyn Event) -> Result<Duration, String> {
        let earlier = earlier.as_any().downcast_ref::<Self>().ok_or("the event is of another device")?;
        self.0.synchronize().map_err(message)?;
        let ms = earlier.0.elapsed_ms(&self.0).map_err(message)?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_drivers_are_unavailable() {
        assert_eq!(too_old((13, 0), 13), None);
        assert_eq!(too_old((12, 9), 12), None);
        assert!(too_old((12, 6), 12).is_some_and(|reason| reason.contains("needs 12.8")));
        assert!(too_old((12, 9), 13).is_some_and(|reason| reason.contains("NVRTC compiles for CUDA 13")));
    }
}
