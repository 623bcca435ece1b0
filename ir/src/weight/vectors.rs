//! Code in the widest vectors that the processor has.

/// Calls `f`, which is to be inlined: it is compiled for AVX-512, for AVX2 and for the least that the build assumes, and the
/// first of these runs that the processor has. The arithmetic is the same in each.
#[inline(always)]
pub(super) fn widest<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx2")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        let wide = std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl");
        if wide {
            // SAFETY: the processor has these instructions.
            return unsafe { avx512(f) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { avx2(f) };
        }
    }
    f()
}
