//! The machine a benchmark runs on, as far as it can be read.

use std::time::{SystemTime, UNIX_EPOCH};

use planish_runtimes::nvml::GpuDescription;
use serde::{Deserialize, Serialize};

/// Instruction sets that decide which kernels a runtime takes.
const FLAGS: &[&str] = &[
    "avx2",
    "f16c",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
];

/// The machine and its software.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// The processor.
    pub cpu: Cpu,
    /// The operating system and its kernel.
    pub os: String,
    /// The GPU that cells ran on, where there is one that tells it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuDescription>,
    /// Versions of the runtimes, by name.
    pub runtimes: std::collections::BTreeMap<String, String>,
    /// Seconds since 1970, UTC.
    pub time: u64,
}

/// The processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cpu {
    /// Its name; empty where the system does not tell.
    pub model: String,
    /// Which of the instruction sets that matter it has.
    pub flags: Vec<String>,
    /// Cores this process may use.
    pub cores: usize,
    /// The frequency governor, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub governor: Option<String>,
}

impl Environment {
    /// Reads what this machine is.
    #[must_use]
    pub fn read(runtimes: impl IntoIterator<Item = (String, String)>) -> Self {
        let text = |path: &str| planish_files::read_system(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let has = field(&cpuinfo, "flags").or_else(|| field(&cpuinfo, "Features")).unwrap_or_default();
        let governor = text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned();
        let release = text("/etc/os-release");
        let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or(std::env::consts::OS);
        let kernel = text("/proc/sys/kernel/osrelease");
        Self {
            cpu: Cpu {
                model: model(&cpuinfo),
                flags: FLAGS
                    .iter()
                    .filter(|flag| has.split(' ').any(|h| h == **flag))
                    .map(ToString::to_string)
                    .collect(),
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                governor: (!governor.is_empty()).then_some(governor),
            },
            os: format!("{} {}", name.trim_matches('"'), kernel.trim()).trim().to_owned(),
            gpu: None,
            runtimes: runtimes.into_iter().collect(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }
}

/// The name of the processor, or where there is none, as on ARM, the numbers of who made it and which one it is.
fn model(cpuinfo: &str) -> String {
    let number = |name: &str| Some(format!("{} {}", name.trim_start_matches("CPU "), field(cpuinfo, name)?));
    let numbers = || ["CPU implementer", "CPU part", "CPU variant"].into_iter().filter_map(number);
    field(cpuinfo, "model name").map_or_else(|| numbers().collect::<Vec<_>>().join(", "), str::to_owned)
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find_map(|(key, value)| (key == name).then_some(value))
}

/// Figures of this process's memory from `/proc/self/status`, in bytes: what is resident now
/// (`VmRSS`) or was at most (`VmHWM`). `None` where the system does not tell.
pub(crate) fn memory(name: &str) -> Option<u64> {
    let status = planish_files::read_system("/proc/self/status")?;
    let kib: u64 = field(&status, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The bytes that came from storage for this process since its start, and not from the cache of the system. `None` where the
/// system does not tell.
pub(crate) fn bytes_from_storage() -> Option<u64> {
    let io = planish_files::read_system("/proc/self/io")?;
    field(&io, "read_bytes")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 2\nmodel name\t: A CPU: fast\nflags : fpu avx2\n";
        assert_eq!(field(text, "model name"), Some("A CPU: fast"));
        assert_eq!(field(text, "flags"), Some("fpu avx2"));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn the_peak_is_at_least_what_is_resident() {
        let block = vec![1u8; 64 << 20];
        let (now, peak) = (memory("VmRSS").unwrap(), memory("VmHWM").unwrap());
        assert!(now > 64 << 20 && peak > 64 << 20 && block.iter().all(|b| *b == 1));
        assert!(memory("VmNothing").is_none());
    }
}
