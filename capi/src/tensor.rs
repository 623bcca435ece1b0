//! Tensors as C has them.

use std::ffi::{c_char, c_void};

use planish_eval::{Data, Tensor};
use planish_ir::DType;

use crate::code::Misuse;
use crate::pointers::{list, text};

/// The type of an element. Numbers are in the byte order of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// A type that this interface has no tensors of. Inputs that have it cannot be given.
    Other = 0,
    /// A byte, 0 or 1.
    Bool = 1,
    /// Signed, 8 bits.
    I8 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Signed, 64 bits.
    I64 = 5,
    /// Unsigned, 8 bits.
    U8 = 6,
    /// Unsigned, 16 bits.
    U16 = 7,
    /// Unsigned, 32 bits.
    U32 = 8,
    /// Unsigned, 64 bits.
    U64 = 9,
    /// A float of 16 bits, IEEE 754 binary16.
    F16 = 10,
    /// A float of 16 bits with the exponent of F32.
    Bf16 = 11,
    /// A float of 32 bits.
    F32 = 12,
    /// A float of 64 bits.
    F64 = 13,
    /// Texts, of a planish_port only. They are given and returned as U8 with one dimension more, the bytes of the longest text;
    /// shorter ones end in zeros.
    Text = 14,
}

/// The types of tensors.
const DTYPES: &[(Dtype, DType)] = &[
    (Dtype::Bool, DType::Bool),
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::I32, DType::I32),
    (Dtype::I64, DType::I64),
    (Dtype::U8, DType::U8),
    (Dtype::U16, DType::U16),
    (Dtype::U32, DType::U32),
    (Dtype::U64, DType::U64),
    (Dtype::F16, DType::F16),
    (Dtype::Bf16, DType::Bf16),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
];

impl Dtype {
    /// The type of an input or an output.
    pub(crate) fn of(dtype: Option<DType>) -> Self {
        match dtype {
            Some(DType::String) => Self::Text,
            _ => DTYPES.iter().find(|(_, own)| Some(*own) == dtype).map_or(Self::Other, |(named, _)| *named),
        }
    }
}

/// A tensor: its elements in row-major order: those of the last dimension lie side by side.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TensorView {
    /// The name of the input or the output.
    pub name: *const c_char,
    /// The type of its elements: a planish_dtype.
    pub dtype: i32,
    /// The number of dimensions; 0 for a single element.
    pub rank: usize,
    /// The sizes of the dimensions, `rank` of them. May be NULL if `rank` is 0.
    pub shape: *const usize,
    /// The elements, at any alignment. May be NULL if `bytes` is 0.
    pub data: *const c_void,
    /// The size of all elements in bytes.
    pub bytes: usize,
}

impl TensorView {
    /// The name and a copy of the tensor; `what` names it.
    ///
    /// # Safety
    /// The pointers are NULL, or live and of as many elements as the other members say.
    pub(crate) unsafe fn to_tensor(self, what: &str) -> Result<(String, Tensor), Misuse> {
        // SAFETY: the caller promises it.
        let name = unsafe { text(self.name, &format!("{what}.name")) }?.to_owned();
        let dtype = DTYPES.iter().find(|(named, _)| *named as i32 == self.dtype).map(|(_, own)| *own);
        let Some(dtype) = dtype else {
            let why = format!(
                "{what}.dtype of `{name}` is {}; tensors have PLANISH_DTYPE_BOOL, 1, to PLANISH_DTYPE_F64, 13",
                self.dtype
            );
            return Err(Misuse(why));
        };
        // SAFETY: the caller promises it.
        let shape = unsafe { list(self.shape, self.rank, &format!("{what}.shape of `{name}`")) }?.to_vec();
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, size| bytes.checked_mul(*size));
        if bytes != Some(self.bytes) {
            let needed =
                bytes.map_or_else(|| "more bytes than memory has".to_owned(), |bytes| format!("{bytes} bytes"));
            let given = self.bytes;
            return Err(Misuse(format!("{what}.bytes of `{name}` is {given}, and {dtype}{shape:?} has {needed}")));
        }
        // SAFETY: the caller promises it.
        let data = unsafe { list(self.data.cast::<u8>(), self.bytes, &format!("{what}.data of `{name}`")) }?;
        let no_tensor = || Misuse(format!("{what}: {dtype}{shape:?} is no tensor"));
        let tensor = Tensor::from_bytes(dtype, shape.clone(), data).ok_or_else(no_tensor)?;
        Ok((name, tensor))
    }

    /// A tensor as C sees it, as long as that and the name live where they are.
    pub(crate) fn of(name: *const c_char, tensor: &Tensor) -> Self {
        macro_rules! data {
            ($($variant:ident),*) => {
                match tensor.data() {
                    $(Data::$variant(elements) => (elements.as_ptr().cast::<c_void>(), size_of_val(elements.as_slice())),)*
                }
            };
        }
        let (data, bytes) = data!(Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64);
        let (shape, dtype) = (tensor.shape(), Dtype::of(Some(tensor.dtype())) as i32);
        Self { name, dtype, rank: shape.len(), shape: shape.as_ptr(), data, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: &[usize], data: *const c_void, bytes: usize) -> TensorView {
        let (name, dtype) = (c"x".as_ptr(), Dtype::F32 as i32);
        TensorView { name, dtype, rank: shape.len(), shape: shape.as_ptr(), data, bytes }
    }

    fn refused(view: TensorView) -> String {
        // SAFETY: what the views of these tests point to lives.
        unsafe { view.to_tensor("inputs[0]") }.unwrap_err().to_string()
    }

    #[test]
    fn tensors_pass_both_ways_at_any_alignment() {
        let mut bytes = vec![0u8];
        bytes.extend([1.5f32, -2.0].iter().flat_map(|number| number.to_ne_bytes()));
        let unaligned = bytes[1..].as_ptr().cast();
        // SAFETY: the bytes live.
        let (name, tensor) = unsafe { view(&[2, 1], unaligned, 8).to_tensor("inputs[0]") }.unwrap();
        assert_eq!((name.as_str(), &tensor), ("x", &Tensor::new(vec![2, 1], vec![1.5f32, -2.0]).unwrap()));
        // SAFETY: the tensor lives.
        let (_, again) = unsafe { TensorView::of(c"x".as_ptr(), &tensor).to_tensor("results[0]") }.unwrap();
        assert_eq!(again, tensor);
    }

    #[test]
    fn tensors_without_elements_need_no_data_and_others_do() {
        // SAFETY: nothing is read.
        let (_, empty) = unsafe { view(&[0, 3], std::ptr::null(), 0).to_tensor("inputs[0]") }.unwrap();
        assert_eq!(empty.shape(), [0, 3]);
        assert_eq!(
            refused(view(&[1], std::ptr::null(), 4)),
            "inputs[0].data of `x` is NULL, and its number of elements is 4, not 0"
        );
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_before_anything_is_read() {
        let one = [1.0f32];
        let data = one.as_ptr().cast();
        assert_eq!(refused(view(&[2], data, 4)), "inputs[0].bytes of `x` is 4, and f32[2] has 8 bytes");
        let most = refused(view(&[usize::MAX, 2], data, 4));
        assert!(most.ends_with("has more bytes than memory has"), "{most}");
        let missing = TensorView { shape: std::ptr::null(), ..view(&[1], data, 4) };
        assert_eq!(refused(missing), "inputs[0].shape of `x` is NULL, and its number of elements is 1, not 0");
        let many = TensorView { rank: usize::MAX, ..view(&[1], data, 4) };
        assert!(refused(many).starts_with("inputs[0].shape of `x` cannot have "));
        let strange = TensorView { dtype: 99, ..view(&[1], data, 4) };
        assert!(refused(strange).starts_with("inputs[0].dtype of `x` is 99; "));
        let nameless = TensorView { name: std::ptr::null(), ..view(&[1], data, 4) };
        assert_eq!(refused(nameless), "inputs[0].name is NULL; pass a text that ends in a zero byte");
    }
}
