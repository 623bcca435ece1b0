//! Matrix products by cublasLt.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, sys};
use planish_ir::DType;

use super::message;
use crate::cuda::device::{Epilogue, Matrix, Product};
use crate::driver;

/// Memory that algorithms may use: what NVIDIA recommends for Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;
/// The plans that are kept.
const PLANS: usize = 4096;

/// The products of a GPU.
pub(super) struct Products {
    pub(super) handle: lt::cublasLtHandle_t,
    /// The GPU, the driver and cublasLt, for which algorithms are chosen.
    pub(super) machine: String,
    /// The bytes of the GPU's level 2 cache.
    pub(super) cache: usize,
    /// Owned here: the address is in `workspace`.
    memory: CudaSlice<u8>,
    workspace: u64,
    plans: HashMap<Key, Plan>,
}

// SAFETY: handles of cublasLt may be used by any thread, one at a time.
unsafe impl Send for Products {}

/// What an algorithm is chosen for: all of a product but its addresses, of which the alignment counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    sizes: [usize; 4],
    operands: [(usize, usize, bool, u32); 3],
    c: Option<u32>,
    bias: Option<u32>,
    alpha: u32,
    epilogue: u8,
    types: (DType, DType),
}

/// The alignment of an address: a power of two, 256 at most.
pub(super) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

impl Key {
    fn of(product: &Product) -> Self {
        let operand = |m: &Matrix<u64>| (m.row, m.step, m.transposed, alignment(m.at));
        Self {
            sizes: [product.m, product.n, product.k, product.batch],
            operands: [operand(&product.a), operand(&product.b), operand(&product.d)],
            c: product.c.map(alignment),
            bias: product.bias.map(alignment),
            alpha: product.alpha.to_bits(),
            epilogue: product.epilogue as u8,
            types: (product.dtype, product.result),
        }
    }
}

/// The descriptions of a product, and the algorithm. They are destroyed when it is dropped.
struct Plan {
    operation: lt::cublasLtMatmulDesc_t,
    /// Of the first and the second operand of cublasLt, and of the result.
    layouts: [lt::cublasLtMatrixLayout_t; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
}

impl Drop for Plan {
    fn drop(&mut self) {
        destroy(self.operation, &self.layouts);
    }
}

fn destroy(operation: lt::cublasLtMatmulDesc_t, layouts: &[lt::cublasLtMatrixLayout_t]) {
    // SAFETY: they were made by this module, and nothing uses them any more. Nothing can be done about an error.
    unsafe {
        let _ = result::destroy_matmul_desc(operation);
        for layout in layouts {
            let _ = result::destroy_matrix_layout(*layout);
        }
    }
}

pub(super) fn said(error: CublasError) -> String {
    format!("cublasLt: {error}")
}

fn data_type(dtype: DType) -> Result<lt::cudaDataType, String> {
    Ok(match dtype {
        DType::F32 => lt::cudaDataType::CUDA_R_32F,
        DType::F16 => lt::cudaDataType::CUDA_R_16F,
        DType::Bf16 => lt::cudaDataType::CUDA_R_16BF,
        DType::I8 => lt::cudaDataType::CUDA_R_8I,
        DType::I32 => lt::cudaDataType::CUDA_R_32I,
        other => return Err(format!("there are no products of {other}")),
    })
}

/// What a product computes sums in, and the type of its factors `alpha` and `beta`.
fn arithmetic(product: &Product) -> (lt::cublasComputeType_t, lt::cudaDataType) {
    match product.dtype {
        DType::I8 => (lt::cublasComputeType_t::CUBLAS_COMPUTE_32I, lt::cudaDataType::CUDA_R_32I),
        _ => (lt::cublasComputeType_t::CUBLAS_COMPUTE_32F, lt::cudaDataType::CUDA_R_32F),
    }
}

/// The bits of a factor of a product: those of a float32, or of an integer for codes, whose factors are 0 and 1.
fn factor(product: &Product, value: f32) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 or 1")]
    match product.dtype {
        DType::I8 => value as u32,
        _ => value.to_bits(),
    }
}

/// The bytes of a value as an attribute.
pub(super) fn attribute<T>(value: &T) -> (*const c_void, usize) {
    (std::ptr::from_ref(value).cast(), size_of::<T>())
}

impl Products {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Self, String> {
        // SAFETY: the memory is scratch.
        let memory = unsafe { stream.alloc::<u8>(WORKSPACE) }.map_err(message)?;
        let context = stream.context();
        let cache = context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map_err(message)?;
        // SAFETY: the library is loaded.
        let version = unsafe { lt::cublasLtGetVersion() };
        let (major, minor) = driver::version();
        let name = context.name().map_err(message)?;
        let machine =
            format!("{name}, driver of CUDA {major}.{minor}, cublasLt {version}, {WORKSPACE} bytes of workspace");
        let handle = result::create_handle().map_err(said)?;
        let (workspace, in_order) = memory.device_ptr(stream);
        drop(in_order);
        let cache = usize::try_from(cache).unwrap_or(0);
        Ok(Self { handle, machine, cache, memory, workspace, plans: HashMap::new() })
    }

    pub(super) fn multiply(&mut self, product: &Product, stream: &Arc<CudaStream>) -> Result<(), String> {
        let key = Key::of(product);
        if !self.plans.contains_key(&key) {
            // Sizes that differ from run to run do not fill the memory.
            if self.plans.len() >= PLANS {
                self.plans.clear();
            }
            let plan = self.plan(&key, product, stream)?;
            self.plans.insert(key, plan);
        }
        let plan = self.plans.get(&key).ok_or("a product has no plan")?;
        set_bias(plan.operation, product)?;
        self.run(plan.operation, &plan.layouts, &plan.algorithm, product, stream)
    }

    pub(super) fn run(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        algorithm: &lt::cublasLtMatmulAlgo_t,
        product: &Product,
        stream: &Arc<CudaStream>,
    ) -> Result<(), String> {
        let beta = if product.c.is_some() { 1.0 } else { 0.0 };
        let [alpha, beta] = [product.alpha, beta].map(|value| factor(product, value));
        let at = |address: u64| -> *mut c_void {
            std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
        };
        // SAFETY: the descriptions are those of the product, whose operands are in memory of the GPU.
        let done = unsafe {
            result::matmul(
                self.handle,
                operation,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                // Column-major, the product of the transposes in the other order is the transpose of the product.
                at(product.b.at),
                layouts[0],
                at(product.a.at),
                layouts[1],
                at(product.c.unwrap_or(product.d.at)),
                layouts[2],
                at(product.d.at),
                layouts[2],
                std::ptr::from_ref(algorithm),
                at(self.workspace),
                WORKSPACE,
                stream.cu_stream().cast(),
            )
        };
        done.map_err(said)
    }

    /// Describes a product, and finds the fastest algorithm for it.
    fn plan(&self, key: &Key, product: &Product, stream: &Arc<CudaStream>) -> Result<Plan, String> {
        let (compute, factors) = arithmetic(product);
        let operation = result::create_matmul_desc(compute, factors).map_err(said)?;
        let mut layouts = Vec::new();
        let algorithm = describe(operation, product, &mut layouts)
            .and_then(|layouts| self.chosen(key, operation, &layouts, product, stream).map(|best| (layouts, best)));
        match algorithm {
            Ok((layouts, algorithm)) => Ok(Plan { operation, layouts, algorithm }),
            Err(reason) => {
                destroy(operation, &layouts);
                Err(reason)
            }
        }
    }
}

/// Sets the attributes of an operation, and makes the layouts of the matrices. All that were made are in `made`, also after
/// an error.
fn describe(
    operation: lt::cublasLtMatmulDesc_t,
    product: &Product,
    made: &mut Vec<lt::cublasLtMatrixLayout_t>,
) -> Result<[lt::cublasLtMatrixLayout_t; 3], String> {
    use lt::cublasLtMatmulDescAttributes_t as Attribute;
    let set = |which, value: *const c_void, bytes| {
        // SAFETY: the values have the types that cublasLt documents: numbers of 32 bits.
        unsafe { result::set_matmul_desc_attribute(operation, which, value, bytes) }.map_err(said)
    };
    // CUBLAS_OP_T and CUBLAS_OP_N.
    let transposed = |yes: bool| i32::from(yes);
    for (which, matrix) in
        [(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &product.b), (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &product.a)]
    {
        let value = transposed(matrix.transposed);
        let (value, bytes) = attribute(&value);
        set(which, value, bytes)?;
    }
    let epilogue = match (product.epilogue, product.bias.is_some()) {
        (Epilogue::None, false) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
        (Epilogue::None, true) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
        (Epilogue::Relu, false) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
        (Epilogue::Relu, true) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
        (Epilogue::GeluTanh, false) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU,
        (Epilogue::GeluTanh, true) => lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
    };
    let (value, bytes) = attribute(&epilogue);
    set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, value, bytes)?;
    set_bias(operation, product)?;
    let Product { m, n, k, .. } = *product;
    let mut layout = |matrix: &Matrix<u64>, rows: usize, columns: usize, dtype: DType| {
        // Row-major rows are column-major columns.
        let (rows, columns) = if matrix.transposed { (rows, columns) } else { (columns, rows) };
        let row = i64::try_from(matrix.row).map_err(|e| e.to_string())?;
        let layout = result::create_matrix_layout(data_type(dtype)?, rows as u64, columns as u64, row).map_err(said)?;
        made.push(layout);
        if product.batch > 1 {
            use lt::cublasLtMatrixLayoutAttribute_t as Layout;
            let count = i32::try_from(product.batch).map_err(|e| e.to_string())?;
            let step = i64::try_from(matrix.step).map_err(|e| e.to_string())?;
            let set = |which, value: *const c_void, bytes| {
                // SAFETY: the attributes have the types that cublasLt documents.
                unsafe { result::set_matrix_layout_attribute(layout, which, value, bytes) }.map_err(said)
            };
            let (value, bytes) = attribute(&count);
            set(Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, value, bytes)?;
            let (value, bytes) = attribute(&step);
            set(Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, value, bytes)?;
        }
        Ok::<_, String>(layout)
    };
    Ok([
        layout(&product.b, k, n, product.dtype)?,
        layout(&product.a, m, k, product.dtype)?,
        layout(&product.d, m, n, product.result)?,
    ])
}

fn set_bias(operation: lt::cublasLtMatmulDesc_t, product: &Product) -> Result<(), String> {
    let Some(bias) = product.bias else { return Ok(()) };
    let which = lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    let (value, bytes) = attribute(&bias);
    // SAFETY: the attribute is an address.
    unsafe { result::set_matmul_desc_attribute(operation, which, value, bytes) }.map_err(said)
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.clear();
        // Nothing can be done about an error.
        let _ = self.memory.stream().context().bind_to_thread();
        // SAFETY: nothing uses the handle any more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
