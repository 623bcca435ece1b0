//! The timing cache: what TensorRT measured of kernels, so that a later build of a like model need not.

use std::ffi::c_void;
use std::pin::Pin;

use cxx::UniquePtr;
use trtx_sys::nvinfer1::{IBuilderConfig, IHostMemory, ITimingCache};

/// A timing cache. The configuration of a build points to it, so it is dropped after that.
pub(super) struct TimingCache(*mut ITimingCache);

impl TimingCache {
    /// A cache with what an earlier build measured, which the configuration uses. A cache that TensorRT does not take, of
    /// another version or broken, is replaced by an empty one; TensorRT logs a warning. `None` where there is no cache.
    pub(super) fn new(mut config: Pin<&mut IBuilderConfig>, bytes: Option<&[u8]>) -> Option<Self> {
        let create = |bytes: &[u8]| {
            // SAFETY: TensorRT only reads the bytes, during the call.
            let cache = unsafe { config.createTimingCache(bytes.as_ptr().cast(), bytes.len()) };
            (!cache.is_null()).then_some(Self(cache))
        };
        let candidates = [bytes.and_then(create), create(&[])];
        candidates.into_iter().flatten().find(|cache| {
            // SAFETY: the cache was just made.
            let cache = unsafe { &*cache.0 };
            config.as_mut().setTimingCache(cache, false)
        })
    }

    /// Its bytes, for a later build.
    pub(super) fn serialize(&self) -> Option<Vec<u8>> {
        let object: *const Interface = self.0.cast_const().cast();
        // SAFETY: an `ITimingCache` is the address of the table of its methods, then that of its implementation, whose own
        // table begins as `Methods` says; `serialize` is its first method.
        let memory = unsafe {
            let implementation = (*object).implementation;
            ((*(*implementation).methods).serialize)(implementation)
        };
        // SAFETY: the caller of `serialize` owns what it returns; null is allowed.
        let memory = unsafe { UniquePtr::<IHostMemory>::from_raw(memory.cast()) };
        let memory = memory.as_ref()?;
        // SAFETY: the memory is owned by `memory`.
        Some(unsafe { std::slice::from_raw_parts(memory.data().cast::<u8>(), memory.size()) }.to_vec())
    }
}

impl Drop for TimingCache {
    fn drop(&mut self) {
        let object: *mut Interface = self.0.cast();
        // SAFETY: the second entry of the table deletes the object; it is alive and deleted once.
        unsafe { ((*(*object).methods).delete)(object.cast()) };
    }
}

/// `nvinfer1::ITimingCache`, whose methods the binding does not have, as C++ on Linux lays it out.
#[repr(C)]
struct Interface {
    methods: *const Destructors,
    implementation: *const Implementation,
}

#[repr(C)]
struct Implementation {
    methods: *const Methods,
}

/// What every table of virtual methods begins with here.
#[repr(C)]
struct Destructors {
    destroy: unsafe extern "C" fn(*mut c_void),
    delete: unsafe extern "C" fn(*mut c_void),
}

#[repr(C)]
struct Methods {
    destructors: Destructors,
    serialize: unsafe extern "C" fn(*const Implementation) -> *mut c_void,
}
