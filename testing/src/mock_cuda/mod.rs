//! A mocked CUDA: a driver, NVRTC and cublasLt whose GPU is the host's processor, for tests of what gives work to a GPU.
//! `libcuda.cpp` describes what it models.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// The variable that says, in a process that [`run`] started, which test runs there.
const INSIDE: &str = "MOCK_CUDA_TEST";

const SOURCES: [(&str, &str); 6] = [
    ("build.sh", include_str!("build.sh")),
    ("device.h", include_str!("device.h")),
    ("mock.h", include_str!("mock.h")),
    ("libcuda.cpp", include_str!("libcuda.cpp")),
    ("libnvrtc.cpp", include_str!("libnvrtc.cpp")),
    ("libcublasLt.cpp", include_str!("libcublasLt.cpp")),
];

/// The folder of the libraries. They are built once for all tests of a build folder.
#[must_use]
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let text: String = SOURCES.iter().map(|(_, text)| *text).collect();
        let hash = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            // FNV-1a.
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        // The test is in the folder `deps` of the build folder's profile.
        let build = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let to = build.join(format!("mock_cuda/{hash:016x}"));
        if !to.exists() {
            let new = build.join(format!("mock_cuda/{hash:016x}.{}", std::process::id()));
            let headers = root.join("runtimes/src/cuda/emulator").canonicalize().unwrap();
            fs::create_dir_all(&new).unwrap();
            for (name, text) in SOURCES {
                fs::write(new.join(name), text).unwrap();
            }
            let status = Command::new("sh").arg(new.join("build.sh")).args([&headers, &new]).status().unwrap();
            assert!(status.success(), "the mocked CUDA does not build");
            // Another process may have been first.
            if fs::rename(&new, &to).is_err() {
                fs::remove_dir_all(&new).unwrap();
            }
        }
        to
    })
}

/// A command with the mocked CUDA in its environment, and a folder of compiled kernels that tests share.
#[must_use]
pub fn command(program: &Path) -> Command {
    let folder = folder();
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("PLANISH_CUDA_LIB", folder)
        .env("XDG_CACHE_HOME", folder.with_file_name("cache"));
    command
}

/// Whether this process runs a test with the mocked CUDA. If not, runs the test `name`, as its module path and name, in such
/// a process with these variables too, and fails if it does.
#[must_use]
pub fn inside(name: &str, variables: &[(&str, &str)]) -> bool {
    if env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return true;
    }
    // The harness has no name of the crate in front.
    let test = name.split_once("::").map_or(name, |(_, test)| test);
    let mut command = command(&env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, name).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{name} with the mocked CUDA: {}\n{said}",
        output.status
    );
    false
}
