//! The energy that the processor takes, as RAPL counts it where the system lets this process read it; what reads the GPU is in
//! [`planish_runtimes::nvml`].

use std::fs;
use std::path::{Path, PathBuf};

use planish_runtimes::nvml::GpuMonitor;

/// Where Linux lists the counters of the processor's packages.
const COUNTERS: &str = "/sys/class/powercap";

/// What is read while runs are timed, as far as it is there.
pub(crate) struct Meters {
    pub(crate) rapl: Option<Rapl>,
    pub(crate) gpu: Option<GpuMonitor>,
}

/// The counters of all packages of the processor.
pub(crate) struct Rapl {
    packages: Vec<Package>,
}

struct Package {
    folder: PathBuf,
    /// The counter starts again after this, in microjoules.
    most: u64,
}

impl Rapl {
    /// `None` where there is no counter that can be read.
    pub(crate) fn open() -> Option<Self> {
        Self::open_in(Path::new(COUNTERS))
    }

    fn open_in(folder: &Path) -> Option<Self> {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let package = |folder: PathBuf| {
            // `intel-rapl:0` is a package, also of AMD; `intel-rapl:0:0` is a part of it.
            let name = folder.file_name()?.to_str()?;
            name.strip_prefix("intel-rapl:").filter(|rest| !rest.contains(':'))?;
            number(&folder.join("energy_uj"))?;
            Some(Package { most: number(&folder.join("max_energy_range_uj"))?, folder })
        };
        let packages: Vec<Package> = entries.filter_map(|entry| package(entry.path())).collect();
        (!packages.is_empty()).then_some(Self { packages })
    }

    /// What the counters say, in microjoules.
    pub(crate) fn read(&self) -> Vec<u64> {
        self.packages.iter().map(|package| number(&package.folder.join("energy_uj")).unwrap_or(0)).collect()
    }

    /// The energy from one reading to a later one, in joules.
    pub(crate) fn joules(&self, before: &[u64], after: &[u64]) -> f64 {
        let one = |((package, before), after): ((&Package, &u64), &u64)| match after.checked_sub(*before) {
            Some(used) => used,
            None => (package.most.saturating_sub(*before)).saturating_add(*after),
        };
        self.packages.iter().zip(before).zip(after).map(one).map(|used| used as f64).sum::<f64>() / 1e6
    }
}

fn number(path: &Path) -> Option<u64> {
    planish_files::read_system(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_added_and_counters_start_again() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Rapl::open_in(folder.path()).is_none());
        let write = |package: &str, energy: u64| {
            let place = folder.path().join(package);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("energy_uj"), format!("{energy}\n")).unwrap();
            fs::write(place.join("max_energy_range_uj"), "10000000\n").unwrap();
        };
        write("intel-rapl:0", 1_000_000);
        write("intel-rapl:1", 9_500_000);
        write("intel-rapl:0:0", 7);
        let rapl = Rapl::open_in(folder.path()).unwrap();
        let before = rapl.read();
        write("intel-rapl:0", 3_000_000);
        write("intel-rapl:1", 500_000);
        let after = rapl.read();
        assert_eq!((before.len(), rapl.joules(&before, &after)), (2, 2.0 + 1.0));
    }
}
