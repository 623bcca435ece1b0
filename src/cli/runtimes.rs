//! `planish runtimes`.

use anyhow::{Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_runtimes::cuda::{Cuda, check_kernels, precompile_check};
use planish_runtimes::tensorrt::{RUNTIME, builder};
use planish_runtimes::{Description, Libraries, Runtime};
use serde::Serialize;

use super::terminal::progress;
use super::{LibraryArguments, print, print_json};

/// List the runtimes: the path of each, or why it is not available
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    /// Run every kernel of a native runtime on small inputs, and compare the results with the reference interpreter
    #[arg(long, value_name = "NAME", value_parser = native, conflicts_with = "json")]
    test_kernels: Option<Cuda>,
    /// Compile the kernels of --test-kernels for an architecture, e.g. sm_90, into the folder of caches. This needs NVRTC, and
    /// no GPU
    #[arg(long, value_name = "ARCHITECTURE", value_parser = architecture, conflicts_with_all = ["json", "test_kernels"])]
    compile_kernels: Option<String>,
    #[command(flatten)]
    runtime: LibraryArguments,
}

/// A runtime with kernels of its own.
fn native(name: &str) -> Result<Cuda, String> {
    let found = Cuda::ALL.into_iter().find(|runtime| runtime.name() == name);
    found.ok_or_else(|| {
        format!("`{name}` is no runtime with kernels of planish; those are {}", Cuda::ALL.map(|r| r.name()).join(", "))
    })
}

/// An architecture of GPUs as NVRTC names it.
pub(super) fn architecture(name: &str) -> Result<String, String> {
    let number = name.strip_prefix("sm_").filter(|number| number.parse::<u32>().is_ok_and(|number| number >= 80));
    number.map(|_| name.to_owned()).ok_or_else(|| "expected sm_80 or newer, e.g. sm_90".to_owned())
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    available: bool,
    version: Option<String>,
    location: Option<String>,
    problem: Option<String>,
    /// What builds engines for the runtime, where that is another thing than what runs them and it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    builder: Option<Builder>,
}

#[derive(Serialize)]
struct Builder {
    product: &'static str,
    version: String,
    location: String,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    if let Some(runtime) = arguments.test_kernels {
        return test_kernels(runtime);
    }
    if let Some(architecture) = &arguments.compile_kernels {
        let count = precompile_check(architecture)?;
        return print(&format!("{count} kernels for {architecture} are in the folder of caches\n"));
    }
    let RuntimeSettings { ort_library, trt_library, openvino_library, .. } = arguments.runtime.settings();
    let libraries = Libraries { ort: ort_library, trt: trt_library.clone(), openvino: openvino_library };
    let entries: Vec<Entry> = planish_runtimes::runtimes(libraries)
        .iter()
        .map(|runtime| {
            let name = runtime.name();
            let builder = (name == RUNTIME).then(|| builder(trt_library.clone()).ok()).flatten();
            let builder =
                builder.map(|Description { product, version, location }| Builder { product, version, location });
            match runtime.check() {
                Ok(found) => Entry {
                    name,
                    available: true,
                    version: Some(found.version),
                    location: Some(found.location),
                    problem: None,
                    builder,
                },
                Err(problem) => Entry {
                    name,
                    available: false,
                    version: None,
                    location: None,
                    problem: Some(problem.to_string()),
                    builder,
                },
            }
        })
        .collect();
    if arguments.json {
        return print_json(&entries);
    }
    print(&entries.iter().map(lines).collect::<String>())
}

/// Checks the kernels of a runtime.
fn test_kernels(runtime: Cuda) -> Result<()> {
    let found = check_kernels(runtime, &mut |group, cases| progress(&format!("{group}: {cases} cases")))?;
    if found.failed.is_empty() {
        return print(&format!(
            "the kernels of {} agree with the reference interpreter in {} cases\n",
            runtime.name(),
            found.passed
        ));
    }
    let all = found.passed + found.failed.len();
    let lines: String = found.failed.iter().map(|reason| format!("\n  {reason}")).collect();
    bail!("the kernels of {} are wrong in {} of {all} cases:{lines}", runtime.name(), found.failed.len())
}

/// What is said of a runtime: first what builds its engines, then whether it runs.
fn lines(entry: &Entry) -> String {
    let runs = match (&entry.version, &entry.location, &entry.problem) {
        (Some(version), Some(location), _) => format!("{version:8} {location}"),
        (_, _, problem) => problem.clone().unwrap_or_default(),
    };
    match &entry.builder {
        None => format!("{:13} {runs}\n", entry.name),
        Some(Builder { product, version, location }) => {
            format!("{:13} builder: {product} {version}, {location}\n{:13} {runs}\n", entry.name, "")
        }
    }
}
