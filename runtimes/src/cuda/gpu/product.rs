//! Matrix products by cublasLt. For each shape, the algorithms that it proposes are timed once, and the fastest is kept.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, sys};
use planish_ir::DType;

use super::message;
use crate::cuda::device::{Epilogue, Matrix, Product};

/// Memory that algorithms may use: what NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;
/// The algorithms that are timed.
const ALGORITHMS: usize = 8;
/// The plans that are kept.
const PLANS: usize = 4096;
/// How often each is run to be timed, after one run that is not.
const RUNS: usize = 3;

/// The products of a GPU.
pub(super) struct Products {
    handle: lt::cublasLtHandle_t,
    /// Owned here: the address is in `workspace`.
    memory: CudaSlice<u8>,
    workspace: u64,
    plans: HashMap<Key, Plan>,
}

// SAFETY: handles of cublasLt may be used by any thread, one at a time.
unsafe impl Send for Products {}

/// What an algorithm is chosen for: all of a product but its addresses, of which the alignment counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 4],
    operands: [(usize, usize, bool, u32); 3],
    c: Option<u32>,
    bias: Option<u32>,
    alpha: u32,
    epilogue: u8,
    types: (DType, DType),
}

/// The alignment of an address: a power of two, 256 at most.
fn alignment(address: u64) -> u32 {
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

fn said(error: CublasError) -> String {
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
fn attribute<T>(value: &T) -> (*const c_void, usize) {
    (std::ptr::from_ref(value).cast(), size_of::<T>())
}

impl Products {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Self, String> {
        // SAFETY: the memory is scratch.
        let memory = unsafe { stream.alloc::<u8>(WORKSPACE) }.map_err(message)?;
        let handle = result::create_handle().map_err(said)?;
        let (workspace, in_order) = memory.device_ptr(stream);
        drop(in_order);
        Ok(Self { handle, memory, workspace, plans: HashMap::new() })
    }

    pub(super) fn multiply(&mut self, product: &Product, stream: &Arc<CudaStream>) -> Result<(), String> {
        let key = Key::of(product);
        if !self.plans.contains_key(&key) {
            // Sizes that differ from run to run do not fill the memory.
            if self.plans.len() >= PLANS {
                self.plans.clear();
            }
            let plan = self.plan(product, stream)?;
            self.plans.insert(key, plan);
        }
        let plan = self.plans.get(&key).ok_or("a product has no plan")?;
        set_bias(plan.operation, product)?;
        self.run(plan.operation, &plan.layouts, &plan.algorithm, product, stream)
    }

    fn run(
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
    fn plan(&self, product: &Product, stream: &Arc<CudaStream>) -> Result<Plan, String> {
        let (compute, factors) = arithmetic(product);
        let operation = result::create_matmul_desc(compute, factors).map_err(said)?;
        let mut layouts = Vec::new();
        let algorithm = describe(operation, product, &mut layouts)
            .and_then(|layouts| self.fastest(operation, &layouts, product, stream).map(|best| (layouts, best)));
        match algorithm {
            Ok((layouts, algorithm)) => Ok(Plan { operation, layouts, algorithm }),
            Err(reason) => {
                destroy(operation, &layouts);
                Err(reason)
            }
        }
    }

    /// The fastest of the algorithms that cublasLt proposes. While work is recorded nothing is timed: it is the first.
    fn fastest(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        product: &Product,
        stream: &Arc<CudaStream>,
    ) -> Result<lt::cublasLtMatmulAlgo_t, String> {
        let proposed = self.proposed(operation, layouts, product)?;
        let recording = stream.capture_status().map_err(message)?;
        let idle = recording == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut best: Option<(f32, &lt::cublasLtMatmulAlgo_t)> = None;
        if idle && proposed.len() > 1 {
            for candidate in &proposed {
                // One that fails is not taken.
                if let Ok(ms) = self.timed(operation, layouts, &candidate.algo, product, stream)
                    && best.is_none_or(|(least, _)| ms < least)
                {
                    best = Some((ms, &candidate.algo));
                }
            }
        }
        let first = proposed.first().map(|first| &first.algo);
        best.map(|(_, algorithm)| algorithm).or(first).copied().ok_or_else(|| {
            let Product { m, n, k, .. } = product;
            format!("cublasLt has no algorithm for a product [{m}, {k}] x [{k}, {n}] of {}", product.dtype)
        })
    }

    fn timed(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        algorithm: &lt::cublasLtMatmulAlgo_t,
        product: &Product,
        stream: &Arc<CudaStream>,
    ) -> Result<f32, String> {
        let event = || stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).map_err(message);
        self.run(operation, layouts, algorithm, product, stream)?;
        let begin = event()?;
        for _ in 0..RUNS {
            self.run(operation, layouts, algorithm, product, stream)?;
        }
        let end = event()?;
        end.synchronize().map_err(message)?;
        begin.elapsed_ms(&end).map_err(message)
    }

    /// What cublasLt proposes, the best first.
    fn proposed(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        product: &Product,
    ) -> Result<Vec<lt::cublasLtMatmulHeuristicResult_t>, String> {
        use lt::cublasLtMatmulPreferenceAttributes_t as Preference;
        let preference = result::create_matmul_pref().map_err(said)?;
        let c = product.c.unwrap_or(product.d.at);
        let aligned = [
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.b.at),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.a.at),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.d.at),
        ];
        let mut found = Vec::with_capacity(ALGORITHMS);
        let mut count = 0;
        // SAFETY: the attributes have the types that cublasLt documents: a size, and numbers of 32 bits. It writes at most as
        // many results as there is room for.
        let done = unsafe {
            let (workspace, bytes) = attribute(&WORKSPACE);
            let mut set = result::set_matmul_pref_attribute(
                preference,
                Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                workspace,
                bytes,
            );
            for (which, address) in aligned {
                let alignment = alignment(address);
                let (value, bytes) = attribute(&alignment);
                set = set.and_then(|()| result::set_matmul_pref_attribute(preference, which, value, bytes));
            }
            let asked = set.and_then(|()| {
                lt::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    operation,
                    layouts[0],
                    layouts[1],
                    layouts[2],
                    layouts[2],
                    preference,
                    i32::try_from(ALGORITHMS).unwrap_or(1),
                    found.as_mut_ptr(),
                    &raw mut count,
                )
                .result()
            });
            if asked.is_ok() {
                found.set_len(usize::try_from(count).unwrap_or(0).min(ALGORITHMS));
            }
            let _ = result::destroy_matmul_pref(preference);
            asked
        };
        match done {
            Ok(()) | Err(CublasError(lt::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => {}
            Err(error) => return Err(said(error)),
        }
        found
            .retain(|one: &lt::cublasLtMatmulHeuristicResult_t| one.state == lt::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(found)
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
