//! The command `planish`.

use std::process::ExitCode;

/// Has ONNX Runtime leave nothing in the user's home and report nothing: from 1.29 on it else keeps an identifier of
/// the machine and a database of events in the cache folder, before it can be told by its interface.
const NO_TELEMETRY: &str = "ORT_DISABLE_TELEMETRY";

fn main() -> ExitCode {
    if std::env::var_os(NO_TELEMETRY).is_none() {
        // SAFETY: there is no other thread yet that could read the environment.
        unsafe { std::env::set_var(NO_TELEMETRY, "1") };
    }
    // An empty name is no folder: the system's own is taken then.
    if std::env::var_os("TMPDIR").is_some_and(|folder| folder.is_empty()) {
        // SAFETY: as above.
        unsafe { std::env::remove_var("TMPDIR") };
    }
    planish::cli::main()
}
