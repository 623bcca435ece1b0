//! A device that runs the CUDA kernels on the processor: the same sources, compiled as C++ with a header that emulates
//! blocks, warps and shared memory. It is slow. It shows wrong indices, missing barriers and reads of memory that nothing
//! wrote on machines without a GPU, and accesses of shared memory that no barrier orders where `PLANISH_EMULATOR_RACES` is 1.

mod compile;
mod integers;
mod product;
mod races;
mod recording;
#[cfg(test)]
mod tests;

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libloading::Library;
use rayon::prelude::*;

use self::recording::{Work, recorded};
use super::device::{Buffer, Device, Event, Grid, HostMemory as Pinned, KernelId, Memory, Product, Recording};
use super::kernel_table::KernelTable;
use super::source::Source;

pub(crate) use compile::{Compiler, compiler};

/// The alignment of memory, that of CUDA.
const ALIGNMENT: usize = 256;

/// The shared memory of an A100: of a block, and of a multiprocessor.
const SHARED: [usize; 2] = [163 << 10, 164 << 10];

/// The function that runs a kernel: blocks, threads, bytes of dynamic shared memory, and the parameters.
type Launch = unsafe extern "C" fn(*const u32, *const u32, u32, *const *const c_void);

/// The processor.
pub(crate) struct Emulator {
    compiler: Compiler,
    /// The shared memory of a block, and of a multiprocessor.
    shared: [usize; 2],
    kernels: Mutex<KernelTable<Kernel>>,
}

/// The function that returns the number of a kernel's parameters, and the bytes of each.
type Parameters = unsafe extern "C" fn() -> *const u32;

#[derive(Clone)]
struct Kernel {
    name: &'static str,
    launch: Launch,
    /// The bytes of each parameter.
    parameters: Vec<usize>,
    /// Where launches search for races.
    races: Option<races::Races>,
    _library: Arc<Library>,
}

impl Emulator {
    pub(crate) fn new(compiler: Compiler) -> Self {
        Self { compiler, shared: SHARED, kernels: Mutex::default() }
    }

    /// With other shared memory of a block, and of a multiprocessor.
    #[cfg(test)]
    pub(crate) fn with_shared_memory(self, shared: [usize; 2]) -> Self {
        Self { shared, ..self }
    }
}

impl Kernel {
    /// Runs all blocks.
    ///
    /// # Errors
    /// A race in shared memory, where launches search for them.
    fn run(&self, grid: Grid, arguments: &[Vec<u64>]) -> Result<(), String> {
        let pointers: Vec<*const c_void> = arguments.iter().map(|argument| argument.as_ptr().cast()).collect();
        let threads = [grid.threads, 1, 1];
        // SAFETY: the arguments are those of the kernel, and addresses among them are of this device.
        unsafe { (self.launch)(grid.blocks.as_ptr(), threads.as_ptr(), grid.shared, pointers.as_ptr()) };
        self.races.as_ref().map_or(Ok(()), races::Races::check)
    }

    /// The kernel of a library that was made of its source.
    fn load(source: &Source, compiler: &Compiler) -> Result<Self, String> {
        let (library, path) = compiler.library(source)?;
        let name = |function: &str| format!("{function}_{}\0", source.kernel);
        // SAFETY: the macro EXPORT of the header gives the functions these types.
        let (launch, parameters) = unsafe {
            let launch = library.get::<Launch>(name("launch").as_bytes()).map_err(|e| e.to_string())?;
            (*launch, library.get::<Parameters>(name("parameters").as_bytes()).map_err(|e| e.to_string())?)
        };
        // SAFETY: it returns the number of numbers after it, then these, which are static.
        let parameters = unsafe {
            let start = parameters();
            (0..*start as usize).map(|at| *start.add(1 + at) as usize).collect()
        };
        let races = if compiler.races { Some(races::Races::of(&library, path)?) } else { None };
        Ok(Self { name: source.kernel, launch, parameters, races, _library: Arc::new(library) })
    }

    /// Whether arguments are as many as the parameters, and as large.
    fn check(&self, arguments: &[&[u64]]) -> Result<(), String> {
        let (given, wanted) = (arguments.len(), self.parameters.len());
        if given != wanted {
            return Err(format!("the kernel {} takes {wanted} arguments and was given {given}", self.name));
        }
        for (at, (argument, bytes)) in arguments.iter().zip(&self.parameters).enumerate() {
            if argument.len() != bytes.div_ceil(size_of::<u64>()) {
                let given = size_of_val(*argument);
                return Err(format!("argument {at} of the kernel {} has {given} bytes, not {bytes}", self.name));
            }
        }
        Ok(())
    }
}

/// Memory of the processor, with bytes that are no numbers until something writes them.
struct HostMemory {
    start: *mut u8,
    layout: Layout,
    bytes: usize,
}

// SAFETY: it is plain memory, which only the device's work accesses.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    fn new(bytes: usize) -> Result<Self, String> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|e| e.to_string())?;
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(format!("there are no {bytes} bytes of memory"));
        }
        // SAFETY: the memory has this size.
        unsafe { start.write_bytes(0xFF, layout.size()) };
        Ok(Self { start, layout, bytes })
    }
}

impl Pinned for HostMemory {
    fn read(&self) -> &[u8] {
        // SAFETY: the memory has this size, and was written when it was made.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    fn write(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Memory for HostMemory {
    fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// The memory at an address that the device gave.
fn at<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Device for Emulator {
    fn multiprocessors(&self) -> usize {
        // As few as make kernels divide their work.
        4
    }

    fn shared_memory(&self) -> usize {
        self.shared[0]
    }

    fn multiprocessor_shared_memory(&self) -> usize {
        self.shared[1]
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, String> {
        recording::refuse("allocate memory")?;
        HostMemory::new(bytes).map(|memory| Arc::new(memory) as Buffer)
    }

    fn pinned(&self, bytes: usize) -> Result<Box<dyn Pinned>, String> {
        recording::refuse("allocate memory")?;
        HostMemory::new(bytes).map(|memory| Box::new(memory) as Box<dyn Pinned>)
    }

    fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), String> {
        recording::refuse("copy memory of the host that is not pinned")?;
        // SAFETY: callers name memory of this device with room for the bytes.
        unsafe { at::<u8>(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        recording::refuse("wait")?;
        // SAFETY: callers name memory of this device with these bytes.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(at::<u8>(from), to.len()) };
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        recorded(Work::Copy { to, from, bytes })
    }

    fn prepare(&self, sources: &[Source]) -> Result<Vec<KernelId>, String> {
        recording::refuse("load a kernel")?;
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        kernels.prepare(sources, |new| new.par_iter().map(|source| Kernel::load(source, &self.compiler)).collect())
    }

    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[&[u64]]) -> Result<(), String> {
        let kernel = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).get(kernel)?.clone();
        kernel.check(arguments)?;
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        recorded(Work::Launch { kernel, grid, arguments })
    }

    fn multiply(&self, product: &Product) -> Result<(), String> {
        recorded(Work::Multiply(*product))
    }

    fn wait(&self) -> Result<(), String> {
        recording::refuse("wait")
    }

    fn record(&self, give: &mut dyn FnMut() -> Result<(), String>) -> Result<Option<Box<dyn Recording>>, String> {
        recording::record(give).map(Some)
    }

    fn event(&self) -> Result<Option<Box<dyn Event>>, String> {
        Ok(None)
    }

    fn start(&self, _: Duration) -> Result<Option<Box<dyn Event>>, String> {
        Ok(None)
    }
}
