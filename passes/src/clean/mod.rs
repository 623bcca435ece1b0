//! Cleaning: removal of dead, duplicate and ineffective operators.

mod dead;
mod identities;
mod share;
mod subexpressions;

pub use dead::DEAD_CODE;
pub use identities::IDENTITIES;
pub use share::SHARE_WEIGHTS;
pub use subexpressions::COMMON_SUBEXPRESSIONS;
