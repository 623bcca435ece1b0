//! Which cores of the machine are free.

use std::fs;
use std::thread;
use std::time::Duration;

use planish_files::read_system;

/// How often the system is asked, and how far apart: long enough that a process which waits for a disk now and then does not
/// count as one that computes.
const SAMPLES: u32 = 8;
const INTERVAL: Duration = Duration::from_millis(5);

/// The cores that this process may use, and what other processes leave of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// How many this process may use: by its affinity, and the quota of its control group.
    pub usable: usize,
    /// How many of them other processes keep busy.
    pub busy: f64,
}

impl Cores {
    /// Looks at the machine for 40 ms. Where the system does not tell, no core counts as busy.
    #[must_use]
    pub fn now() -> Self {
        let usable = thread::available_parallelism().map_or(1, usize::from);
        let mut others = 0.0;
        for sample in 0..SAMPLES {
            if sample > 0 {
                thread::sleep(INTERVAL);
            }
            let (Some(running), Some(own)) = (running(), own()) else { return Self { usable, busy: 0.0 } };
            others += running.saturating_sub(own) as f64 / f64::from(SAMPLES);
        }
        // Processes are spread over all cores of the machine, of which this process may have a part.
        let part = online().map_or(1.0, |online| (usable as f64 / online.max(1) as f64).min(1.0));
        Self { usable, busy: others * part }
    }

    /// Whether other processes leave all cores to this one.
    #[must_use]
    pub fn are_free(self) -> bool {
        self.busy < 0.5
    }
}

/// The threads that run, or could, on the machine.
fn running() -> Option<usize> {
    let stat = read_system("/proc/stat")?;
    stat.lines().find_map(|line| line.strip_prefix("procs_running "))?.trim().parse().ok()
}

/// Those of this process.
fn own() -> Option<usize> {
    let runs = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
    // A thread may end meanwhile.
    Some(tasks.filter_map(|task| read_system(task.path().join("stat"))).filter(|stat| runs(stat)).count())
}

/// The cores of the machine.
fn online() -> Option<usize> {
    let stat = read_system("/proc/stat")?;
    let core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    Some(stat.lines().filter(core).count()).filter(|cores| *cores > 0)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn half_a_core_that_others_keep_busy_counts() {
        let are_free = |busy| Cores { usable: 2, busy }.are_free();
        assert_eq!([0.0, 0.4, 0.6, 2.0].map(are_free), [true, true, false, false]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_tells_what_runs() {
        let cores = Cores::now();
        assert!(cores.usable > 0 && cores.busy >= 0.0, "{cores:?}");
        assert!(online().is_some_and(|online| online >= cores.usable), "{:?} of {cores:?}", online());
        // This thread runs while it asks, and so do two more.
        let ends = AtomicBool::new(false);
        let (own, running) = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            thread::sleep(INTERVAL);
            let seen = (own(), running());
            ends.store(true, Ordering::Relaxed);
            seen
        });
        assert!(own.is_some_and(|own| own >= 3) && running.is_some_and(|running| running >= 3), "{own:?}, {running:?}");
    }
}
