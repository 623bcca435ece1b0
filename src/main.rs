//! The command `planish`.

use std::process::ExitCode;

fn main() -> ExitCode {
    planish::cli::main()
}
