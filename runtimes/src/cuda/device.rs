//! What the runtime asks of a device: memory, kernels and matrix products. There are two devices: a GPU, and the host,
//! which runs the same kernels as C++.

use std::sync::Arc;
use std::time::Duration;

use planish_ir::DType;

use super::source::Source;

/// Memory of a device, freed when it is dropped.
pub(crate) trait Memory: Send + Sync {
    /// Where it begins.
    fn address(&self) -> u64;
    /// How many bytes it has.
    fn bytes(&self) -> usize;
}

/// Memory that several owners share.
pub(crate) type Buffer = Arc<dyn Memory>;

/// The most bytes that are filled at once.
const POISON: usize = 1 << 20;

/// Memory of the host that a device copies from and to without a copy between. [`Device::copy`] takes its address.
pub(crate) trait HostMemory: Memory {
    /// Its bytes. A copy from the device is in them after [`Device::wait`].
    fn read(&self) -> &[u8];
    /// Its bytes, to be changed when no copy reads them any more.
    fn write(&mut self) -> &mut [u8];
}

/// A kernel of a device: its place in the order in which the device prepared them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelId(pub(crate) usize);

/// The sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks along x, y and z.
    pub(crate) blocks: [u32; 3],
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
}

/// A device. Work is done in the order in which it is given; only [`Device::download`] and [`Device::wait`] wait for it.
pub(crate) trait Device: Send + Sync {
    /// The multiprocessors of the device.
    fn multiprocessors(&self) -> usize;

    /// The most bytes of shared memory that a block may have.
    fn shared_memory(&self) -> usize;

    /// The bytes of shared memory of a multiprocessor, which its blocks divide.
    fn multiprocessor_shared_memory(&self) -> usize;

    /// Memory with any contents, aligned to 256 bytes.
    ///
    /// # Errors
    /// When there is not enough.
    fn allocate(&self, bytes: usize) -> Result<Buffer, String>;

    /// Memory of the host that the device copies fast, with any contents.
    ///
    /// # Errors
    /// When there is not enough.
    fn pinned(&self, bytes: usize) -> Result<Box<dyn HostMemory>, String>;

    /// Copies bytes to the device. They may be freed when it returns.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), String>;

    /// Copies bytes from the device when all work that was given is done.
    ///
    /// # Errors
    /// When the device fails.
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String>;

    /// Fills memory with bytes 0xFF, which are no numbers.
    ///
    /// # Errors
    /// When the device fails.
    fn poison(&self, at: u64, bytes: usize) -> Result<(), String> {
        let piece = vec![0xFF; bytes.min(POISON)];
        (0..bytes)
            .step_by(POISON)
            .try_for_each(|done| self.upload(at + done as u64, &piece[..piece.len().min(bytes - done)]))
    }

    /// Copies bytes within the device, or from or to memory of [`Device::pinned`], when the work before is done.
    ///
    /// # Errors
    /// When the device fails.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), String>;

    /// Compiles kernels, or finds what was compiled before.
    ///
    /// # Errors
    /// When a kernel does not compile: what the compiler said.
    fn prepare(&self, sources: &[Source]) -> Result<Vec<KernelId>, String>;

    /// Launches a kernel. `arguments` are the values of its parameters, each in memory aligned to 8 bytes.
    ///
    /// # Errors
    /// When the device fails.
    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[&[u64]]) -> Result<(), String>;

    /// Computes a matrix product.
    ///
    /// # Errors
    /// When the device fails, or has no algorithm for it.
    fn multiply(&self, product: &Product) -> Result<(), String>;

    /// Waits until all work is done.
    ///
    /// # Errors
    /// When the device fails, now or at work that was given earlier.
    fn wait(&self) -> Result<(), String>;

    /// Records the work that `give` gives, to be replayed as a whole; `None` where the device does not record. The work is
    /// not done. `give` gives launches, products and [copies](Self::copy). A recording does not keep the memory that it works
    /// on, and a copy takes what is there when it is replayed.
    ///
    /// # Errors
    /// When `give` fails.
    fn record(&self, give: &mut dyn FnMut() -> Result<(), String>) -> Result<Option<Box<dyn Recording>>, String>;

    /// A point in the order of the work; `None` where the device has no clock of its own.
    ///
    /// # Errors
    /// When the device fails.
    fn event(&self) -> Result<Option<Box<dyn Event>>, String>;

    /// A point in the order of the work like that of [`Device::event`], in front of which the device is busy for about
    /// `busy`, 2 ms at most. While it is, the host gives the work after the point, so that the time it takes for this is
    /// not between this point and a later one.
    ///
    /// # Errors
    /// When the device fails.
    fn start(&self, busy: Duration) -> Result<Option<Box<dyn Event>>, String>;
}

/// Work that was recorded.
pub(crate) trait Recording {
    /// Gives the work to the device once more.
    ///
    /// # Errors
    /// When the device fails.
    fn replay(&self) -> Result<(), String>;
}

/// A point in the order of a device's work.
pub(crate) trait Event {
    /// The time of the device from `earlier` to this point, once it is reached. Both are of the same device.
    ///
    /// # Errors
    /// When the device fails.
    fn since(&self, earlier: &dyn Event) -> Result<Duration, String>;

    /// The event as what the device made it.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A matrix in a device's memory, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix<A> {
    /// Where its first element is.
    pub(crate) at: A,
    /// The elements from a row to the next.
    pub(crate) row: usize,
    /// The elements from a matrix of the batch to the next.
    pub(crate) step: usize,
    /// Whether it is stored as its transpose.
    pub(crate) transposed: bool,
}

/// `d = epilogue(alpha * a * b + c + bias)`, for each matrix of a batch: `a` is [m, k], `b` [k, n], `c` and `d` [m, n].
/// Sums are in float32; those of products of codes, which are i8, are in i32. For codes the result is i32, `alpha` is 1,
/// `a` is stored as it is and `b` as its transpose, there is nothing after the product, and `n`, `k` and the distances
/// of rows are multiples of 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product<A = u64> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batch: usize,
    pub(crate) a: Matrix<A>,
    pub(crate) b: Matrix<A>,
    /// A summand where it is there; of the type and with the layout of `d`. Only without an epilogue.
    pub(crate) c: Option<A>,
    pub(crate) d: Matrix<A>,
    pub(crate) alpha: f32,
    /// A row of `n` elements of type `dtype`.
    pub(crate) bias: Option<A>,
    pub(crate) epilogue: Epilogue,
    /// The type of `a`, `b` and `bias`: float32, float16 or bfloat16, or i8 for codes.
    pub(crate) dtype: DType,
    /// The type of `c` and `d`: `dtype` or float32; i32 of codes.
    pub(crate) result: DType,
}

/// What a product does with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epilogue {
    None,
    Relu,
    /// The tanh form of GELU, as cublasLt has it.
    GeluTanh,
}

impl<A: Copy> Product<A> {
    /// The same with places replaced.
    pub(crate) fn map<B>(&self, f: impl Fn(A) -> B) -> Product<B> {
        let matrix = |m: &Matrix<A>| Matrix { at: f(m.at), row: m.row, step: m.step, transposed: m.transposed };
        Product {
            m: self.m,
            n: self.n,
            k: self.k,
            batch: self.batch,
            a: matrix(&self.a),
            b: matrix(&self.b),
            c: self.c.map(&f),
            d: matrix(&self.d),
            alpha: self.alpha,
            bias: self.bias.map(&f),
            epilogue: self.epilogue,
            dtype: self.dtype,
            result: self.result,
        }
    }
}
