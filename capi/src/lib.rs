//! planish as a library for C. The header `include/planish.h` says the same in C.
//!
//! No panic crosses the border: it becomes [`Code::Failed`]. What C owns is freed by C, what planish returns by planish.

mod calls;
mod code;
mod model;
mod pointers;
mod port;
mod results;
mod tensor;

pub use calls::{
    planish_close, planish_compile, planish_error, planish_free_results, planish_input, planish_input_count,
    planish_open, planish_output, planish_output_count, planish_result, planish_result_count, planish_result_named,
    planish_run, planish_verify, planish_version,
};
pub use code::Code;
pub use model::Model;
pub use port::Port;
pub use results::Results;
pub use tensor::{Dtype, TensorView};
