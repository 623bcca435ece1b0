//! The choice of an algorithm for each product. The algorithms that cublasLt proposes are timed once for a machine, and the
//! fastest is kept in the user's folder of caches.

use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys as lt;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, sys};

use super::product::{Key, Products, WORKSPACE, alignment, attribute, said};
use super::{cached, message};
use crate::cuda::device::Product;

/// The algorithms that are timed.
const ALGORITHMS: usize = 8;
/// How often each is run to be timed, after one run that is not.
const RUNS: usize = 5;

impl Products {
    /// The algorithm for a product: that which was chosen for this machine before, else the fastest of those that cublasLt
    /// proposes. While work is recorded nothing is timed: it is the first.
    pub(super) fn chosen(
        &self,
        key: &Key,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        product: &Product,
        stream: &Arc<CudaStream>,
    ) -> Result<lt::cublasLtMatmulAlgo_t, String> {
        let file = cached::file("products", &[self.machine.clone(), format!("{key:?}")], "algorithm");
        if let Some(kept) = file.as_deref().and_then(cached::read).and_then(|bytes| algorithm(&bytes))
            && self.takes(operation, layouts, &kept)
        {
            return Ok(kept);
        }
        let proposed = self.proposed(operation, layouts, product)?;
        let first = proposed.first().map(|first| first.algo).ok_or_else(|| {
            let Product { m, n, k, .. } = product;
            format!("cublasLt has no algorithm for a product [{m}, {k}] x [{k}, {n}] of {}", product.dtype)
        })?;
        let recording = stream.capture_status().map_err(message)?;
        if recording != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(first);
        }
        let candidates = proposed.iter().map(|proposed| proposed.algo);
        let fastest = self.fastest(candidates, operation, layouts, product, stream);
        if let (Some(fastest), Some(file)) = (&fastest, &file) {
            // The next process chooses again where nothing can be written.
            let _ = cached::write(file, &bytes(fastest));
        }
        Ok(fastest.unwrap_or(first))
    }

    /// The one that takes the least time; `None` where there is no memory to time them, or all fail.
    fn fastest(
        &self,
        candidates: impl Iterator<Item = lt::cublasLtMatmulAlgo_t>,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        product: &Product,
        stream: &Arc<CudaStream>,
    ) -> Option<lt::cublasLtMatmulAlgo_t> {
        // SAFETY: the memory is only written.
        let flush = unsafe { stream.alloc::<u8>((2 * self.cache).max(1)) }.ok()?;
        let times = candidates.filter_map(|candidate| {
            // One that fails is not taken.
            let ms = self.timed(operation, layouts, &candidate, product, stream, &flush).ok()?;
            Some((ms, candidate))
        });
        times.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, fastest)| fastest)
    }

    /// The median time of an algorithm in milliseconds. What it reads is not in the level 2 cache, as weights are not when a
    /// model runs: something as large as two of it is written before each run.
    fn timed(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        algorithm: &lt::cublasLtMatmulAlgo_t,
        product: &Product,
        stream: &Arc<CudaStream>,
        flush: &CudaSlice<u8>,
    ) -> Result<f32, String> {
        let event = || stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).map_err(message);
        let (address, in_order) = flush.device_ptr(stream);
        drop(in_order);
        self.run(operation, layouts, algorithm, product, stream)?;
        let mut runs = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            // SAFETY: the memory has this size.
            let flushed =
                unsafe { cudarc::driver::result::memset_d8_async(address, 0, flush.len(), stream.cu_stream()) };
            flushed.map_err(message)?;
            let begin = event()?;
            self.run(operation, layouts, algorithm, product, stream)?;
            runs.push((begin, event()?));
        }
        let mut times =
            runs.iter().map(|(begin, end)| begin.elapsed_ms(end)).collect::<Result<Vec<_>, _>>().map_err(message)?;
        times.sort_by(f32::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Whether cublasLt takes an algorithm for a product, with the memory that there is.
    fn takes(
        &self,
        operation: lt::cublasLtMatmulDesc_t,
        layouts: &[lt::cublasLtMatrixLayout_t; 3],
        algorithm: &lt::cublasLtMatmulAlgo_t,
    ) -> bool {
        let mut found = std::mem::MaybeUninit::uninit();
        // SAFETY: the descriptions are those of the product. cublasLt writes the result where it succeeds.
        unsafe {
            let checked = lt::cublasLtMatmulAlgoCheck(
                self.handle,
                operation,
                layouts[0],
                layouts[1],
                layouts[2],
                layouts[2],
                std::ptr::from_ref(algorithm),
                found.as_mut_ptr(),
            );
            checked.result().is_ok() && found.assume_init_ref().workspaceSize <= WORKSPACE
        }
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

/// An algorithm as bytes, which cublasLt allows to keep.
fn bytes(algorithm: &lt::cublasLtMatmulAlgo_t) -> Vec<u8> {
    algorithm.data.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The algorithm of [`bytes`].
fn algorithm(bytes: &[u8]) -> Option<lt::cublasLtMatmulAlgo_t> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Some(lt::cublasLtMatmulAlgo_t { data: words.try_into().ok()? })
}
