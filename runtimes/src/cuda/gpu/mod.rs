//! GPUs of NVIDIA, through the driver, NVRTC and cublasLt, which are loaded when they are first needed.

mod cached;
mod choice;
mod libraries;
mod nvrtc;
mod product;
mod recording;
#[cfg(test)]
mod tests;
mod transfer;

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags, CUfunction_attribute_enum};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, result};
use rayon::prelude::*;

use super::SharedDevice;
use super::device::{Buffer, Device, Event, Grid, HostMemory, KernelId, Memory, Product, Recording};
use super::kernel_table::KernelTable;
use super::source::{SPIN, Source};
use crate::{Description, Unavailable, driver};

/// What a user without a GPU can do.
const OTHERWISE: &str = "verify, run, bench and generate take --runtime cuda-emulator, which runs the same kernels on the \
                         processor, and --runtime reference, which runs the graph";

/// The longest that the GPU is kept busy in front of an event.
const BUSY: Duration = Duration::from_millis(2);

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
    let [nvrtc, cublas_lt] = libraries::load(runtime)?;
    let location = format!("{nvrtc}, {cublas_lt}");
    let (major, minor) = nvrtc::version();
    if let Some(reason) = too_old(driver::version(), major) {
        let remedy = format!("install a newer driver; {OTHERWISE}");
        return Err(Unavailable { runtime, reason, looked: Vec::new(), remedy });
    }
    let architecture = nvrtc::Architecture::of(gpu.capability).map_err(|reason| {
        let remedy = format!("install another version of NVRTC; {OTHERWISE}");
        Unavailable { runtime, reason, looked: Vec::new(), remedy }
    })?;
    let note = match architecture {
        nvrtc::Architecture::Machine(_) => String::new(),
        nvrtc::Architecture::Virtual(name) => {
            format!("; NVRTC does not know sm_{}, so the driver compiles kernels from PTX of {name}", gpu.capability)
        }
    };
    Ok(Description { product: "planish", version: format!("CUDA {major}.{minor} on {}{note}", gpu.name), location })
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
    nvrtc::compile(source, &nvrtc::Architecture::Machine(architecture.to_owned())).map(|compiled| compiled.log)
}

/// Whether NVRTC, which is loaded, compiles for an architecture.
///
/// # Errors
/// Which ones it knows, if it does not.
pub(super) fn check_architecture(architecture: &str) -> Result<(), String> {
    nvrtc::check(architecture)
}

/// Compiles a kernel into the user's folder of caches, where it is not there.
///
/// # Errors
/// What the compiler said, if it failed.
pub(super) fn compile_kept(source: &Source, architecture: &str) -> Result<(), String> {
    nvrtc::compiled(source, &nvrtc::Architecture::Machine(architecture.to_owned())).map(drop)
}

/// A GPU, with a stream in whose order everything runs.
struct Gpu {
    name: String,
    /// What kernels are compiled for.
    architecture: nvrtc::Architecture,
    multiprocessors: usize,
    /// The most bytes of shared memory of a block.
    shared_memory: usize,
    /// The bytes of shared memory of a multiprocessor.
    multiprocessor_shared_memory: usize,
    stream: Arc<CudaStream>,
    recorder: recording::Recorder,
    ring: Mutex<transfer::Ring>,
    kernels: Mutex<KernelTable<Kernel>>,
    products: Mutex<product::Products>,
    given: Mutex<Given>,
}

struct Kernel {
    name: &'static str,
    function: CudaFunction,
    /// The dynamic shared memory that it may have.
    shared: u32,
}

/// The names of the work that was given last. An error of work shows when something waits for it, without a name.
#[derive(Default)]
struct Given {
    names: [&'static str; 6],
    next: usize,
}

impl Given {
    fn add(&mut self, name: &'static str) {
        self.names[self.next % self.names.len()] = name;
        self.next += 1;
    }

    /// The names, the latest first.
    fn latest(&self) -> Vec<&'static str> {
        let count = self.next.min(self.names.len());
        (1..=count).map(|back| self.names[(self.next - back) % self.names.len()]).collect()
    }
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
        driver::keep_pool_memory(&context).map_err(message)?;
        let stream = context.new_stream().map_err(message)?;
        let (major, minor) = context.compute_capability().map_err(message)?;
        let capability = u32::try_from(major * 10 + minor).unwrap_or(0);
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
            architecture: nvrtc::Architecture::of(capability)?,
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
            products: Mutex::new(product::Products::new(&stream)?),
            recorder: recording::Recorder::new(&context)?,
            stream,
            ring: Mutex::default(),
            kernels: Mutex::default(),
            given: Mutex::default(),
        })
    }

    /// Loads a kernel.
    fn kernel(&self, source: &Source, code: Vec<u8>) -> Result<Kernel, String> {
        let module = self.stream.context().load_module(cudarc::nvrtc::Ptx::from_binary(code));
        let function = module.and_then(|module| module.load_function(&source.function()));
        let function = function.map_err(|e| format!("the kernel {} cannot be loaded: {e}", source.kernel))?;
        Ok(Kernel { name: source.kernel, function, shared: SHARED })
    }

    /// Makes the calls that follow in this thread those of the GPU.
    fn bind(&self) -> Result<(), String> {
        self.stream.context().bind_to_thread().map_err(message)
    }

    /// The stream that work of this thread is given to: that of all, or that in which the thread records.
    fn target(&self) -> &Arc<CudaStream> {
        self.recorder.stream().unwrap_or(&self.stream)
    }

    /// An error that may be of work that was given earlier.
    fn late(&self, error: String) -> String {
        match locked(&self.given).latest().as_slice() {
            [] => error,
            names => format!(
                "{error}; the work that was given last, the latest first: {} (with CUDA_LAUNCH_BLOCKING=1 in the \
                 environment, the launch that fails says so)",
                names.join(", ")
            ),
        }
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
        locked(&self.ring).upload(&self.stream, to, bytes).map_err(|e| self.late(e))
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        if to.is_empty() {
            return Ok(());
        }
        locked(&self.ring).download(&self.stream, from, to).map_err(|e| self.late(e))
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        transfer::copy(self.target(), to, from, bytes)
    }

    fn prepare(&self, sources: &[Source]) -> Result<Vec<KernelId>, String> {
        locked(&self.kernels).prepare(sources, |new| {
            let compiled = new.par_iter().map(|source| nvrtc::compiled(source, &self.architecture));
            let compiled: Vec<_> = compiled.collect();
            new.iter().zip(compiled).map(|(source, code)| self.kernel(source, code?)).collect()
        })
    }

    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[&[u64]]) -> Result<(), String> {
        self.bind()?;
        let mut kernels = locked(&self.kernels);
        let kernel = kernels.get(kernel)?;
        if grid.shared > kernel.shared {
            let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(grid.shared).map_err(|e| e.to_string())?;
            let set = kernel.function.set_attribute(attribute, bytes);
            set.map_err(|e| format!("the kernel {} cannot have {bytes} bytes of shared memory: {e}", kernel.name))?;
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
                self.target().cu_stream(),
                &mut parameters,
            )
        };
        launched.map_err(|e| {
            let Grid { blocks, threads, shared } = grid;
            let sizes = format!("{blocks:?} blocks of {threads} threads and {shared} bytes of shared memory");
            self.late(format!("the kernel {} cannot be launched with {sizes}: {e}", kernel.name))
        })?;
        locked(&self.given).add(kernel.name);
        Ok(())
    }

    fn multiply(&self, product: &Product) -> Result<(), String> {
        self.bind()?;
        locked(&self.products).multiply(product, self.target()).map_err(|e| self.late(e))?;
        locked(&self.given).add("a product of cublasLt");
        Ok(())
    }

    fn wait(&self) -> Result<(), String> {
        self.stream.synchronize().map_err(|e| self.late(message(e)))
    }

    fn record(&self, give: &mut dyn FnMut() -> Result<(), String>) -> Result<Option<Box<dyn Recording>>, String> {
        let graph = self.recorder.record(&self.stream, give)?;
        Ok(Some(Box::new(graph)))
    }

    fn event(&self) -> Result<Option<Box<dyn Event>>, String> {
        let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(message)?;
        Ok(Some(Box::new(recording::Point(event))))
    }

    fn start(&self, busy: Duration) -> Result<Option<Box<dyn Event>>, String> {
        let spin = *self.prepare(&[Source::new(SPIN, "spin")])?.first().ok_or("there is no kernel that waits")?;
        let nanoseconds = u64::try_from(busy.min(BUSY).as_nanos()).unwrap_or(0);
        if nanoseconds > 0 {
            self.launch(spin, Grid { blocks: [1, 1, 1], threads: 1, shared: 0 }, &[&[nanoseconds]])?;
        }
        self.event()
    }
}
