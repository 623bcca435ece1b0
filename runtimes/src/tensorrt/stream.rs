//! Where an engine is written while it is built.

use std::ffi::c_void;
use std::io::{self, Write};

use trtx_sys::nvinfer1::IStreamWriter;

/// TensorRT's `IStreamWriter` over a Rust writer. TensorRT calls it on the thread that builds.
///
/// The binding has no class that can be derived from, so this is the object as C++ on Linux lays it out: it begins with the
/// address of the table of its virtual methods.
#[repr(C)]
pub(super) struct Stream<'a> {
    methods: *const Methods,
    output: &'a mut dyn Write,
    /// How many bytes were written.
    bytes: u64,
    /// Why the last bytes were not written.
    failed: Option<io::Error>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(output: &'a mut dyn Write) -> Self {
        Self { methods: &raw const TABLE.methods, output, bytes: 0, failed: None }
    }

    /// The object as TensorRT takes it: it is used as long as the result lives, and not moved.
    pub(super) fn interface(&mut self) -> std::pin::Pin<&mut IStreamWriter> {
        let this: *mut Self = self;
        // SAFETY: an `IStreamWriter` is what begins with the address of such a table; C++ reaches it by its methods only.
        unsafe { std::pin::Pin::new_unchecked(&mut *this.cast::<IStreamWriter>()) }
    }

    /// How many bytes were written.
    ///
    /// # Errors
    /// Why not all were.
    pub(super) fn finish(self) -> io::Result<u64> {
        match self.failed {
            Some(error) => Err(error),
            None => self.output.flush().map(|()| self.bytes),
        }
    }
}

/// `nvinfer1::InterfaceInfo`.
#[repr(C)]
struct InterfaceInfo {
    kind: *const std::ffi::c_char,
    major: i32,
    minor: i32,
}

/// The virtual methods of `nvinfer1::v_1_0::IStreamWriter`, in the order of their declarations: two of its base class
/// `IVersionedInterface`, both destructors, and its own.
#[repr(C)]
struct Methods {
    language: unsafe extern "C" fn(*const c_void) -> i32,
    info: unsafe extern "C" fn(*const c_void) -> InterfaceInfo,
    destroy: unsafe extern "C" fn(*mut c_void),
    delete: unsafe extern "C" fn(*mut c_void),
    write: unsafe extern "C" fn(*mut Stream<'_>, *const c_void, i64) -> i64,
}

/// What stands in front of a table: the object is its own base class, and no type information is given.
#[repr(C)]
struct Table {
    to_top: isize,
    class: usize,
    methods: Methods,
}

static TABLE: Table =
    Table { to_top: 0, class: 0, methods: Methods { language, info, destroy, delete: destroy, write } };

/// C++ (`APILanguage::kCPP`): TensorRT knows no other language that has no runtime of its own.
unsafe extern "C" fn language(_: *const c_void) -> i32 {
    0
}

unsafe extern "C" fn info(_: *const c_void) -> InterfaceInfo {
    InterfaceInfo { kind: c"IStreamWriter".as_ptr(), major: 1, minor: 0 }
}

/// TensorRT destroys no writer; the object belongs to Rust.
unsafe extern "C" fn destroy(_: *mut c_void) {}

unsafe extern "C" fn write(this: *mut Stream<'_>, data: *const c_void, size: i64) -> i64 {
    // SAFETY: TensorRT passes the object of `interface`, which nothing else uses meanwhile.
    let this = unsafe { &mut *this };
    let length = usize::try_from(size).unwrap_or(0);
    if data.is_null() || length == 0 {
        return 0;
    }
    // SAFETY: TensorRT gives so many bytes, which it does not change during the call.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    if this.failed.is_some() {
        return -1;
    }
    match this.output.write_all(bytes) {
        Ok(()) => {
            this.bytes += length as u64;
            size
        }
        Err(error) => {
            this.failed = Some(error);
            -1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As C++ calls it: by the table.
    fn call(stream: &mut Stream<'_>, bytes: &[u8]) -> i64 {
        // SAFETY: the methods are those of this object.
        unsafe { ((*stream.methods).write)(stream, bytes.as_ptr().cast(), i64::try_from(bytes.len()).unwrap()) }
    }

    /// Has room for so many bytes.
    struct Room(usize);

    impl Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_are_written_in_order_and_counted() {
        let mut output = Vec::new();
        let mut stream = Stream::new(&mut output);
        assert_eq!([call(&mut stream, b"one"), call(&mut stream, b""), call(&mut stream, b"two")], [3, 0, 3]);
        assert_eq!(stream.finish().unwrap(), 6);
        assert_eq!(output, b"onetwo");
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let mut room = Room(4);
        let mut stream = Stream::new(&mut room);
        assert_eq!([call(&mut stream, b"one"), call(&mut stream, b"two"), call(&mut stream, b"x")], [3, -1, -1]);
        assert_eq!(stream.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn it_says_what_it_is() {
        let mut output = Vec::new();
        let mut stream = Stream::new(&mut output);
        let this: *const c_void = (&raw mut stream).cast();
        // SAFETY: the methods are those of this object; the text ends in zero.
        let (language, info, kind) = unsafe {
            let info = ((*stream.methods).info)(this);
            (((*stream.methods).language)(this), (info.major, info.minor), std::ffi::CStr::from_ptr(info.kind))
        };
        assert_eq!((language, info, kind), (0, (1, 0), c"IStreamWriter"));
    }
}
