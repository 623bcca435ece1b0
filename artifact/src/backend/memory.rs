//! How much memory is free.

use std::path::Path;

use planish_files::read_system;

/// The memory that this process can take without swapping, in bytes: what the machine has, and what the limits of its control
/// groups leave. `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    available(&|path| read_system(path))
}

/// The same of a system whose files `read` gives.
fn available(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    of_machine(read).into_iter().chain(of_groups(read)).min()
}

fn of_machine(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files of a control group that tell of its memory.
struct Files {
    /// The folder of the outermost group.
    root: &'static str,
    /// The most bytes that the group takes; the smallest number counts.
    limits: &'static [&'static str],
    usage: &'static str,
    /// The counter in `memory.stat` of what is part of the usage and is dropped when memory is short: pages of files that
    /// nothing has touched for a while.
    dropped: &'static str,
}

const V1: Files = Files {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    dropped: "total_inactive_file",
};

/// Above `memory.high` the system slows the group down until it has dropped pages.
const V2: Files = Files {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    dropped: "inactive_file",
};

/// What each control group of this process that has a limit leaves. A group is bound by the limits of those around it too.
fn of_groups(read: &dyn Fn(&str) -> Option<String>) -> Vec<u64> {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let of_line = |line: &str| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let files = match controllers {
            "" => V2,
            controllers => controllers.split(',').any(|name| name == "memory").then_some(V1)?,
        };
        // Of a path that a container does not show, the outermost folder is the container's own group.
        let path = Path::new(path.trim_start_matches('/'));
        Some(path.ancestors().filter_map(|path| left(&files, path.to_str()?, read)).collect::<Vec<_>>())
    };
    groups.lines().filter_map(of_line).flatten().collect()
}

/// What the limit of one control group leaves.
fn left(files: &Files, group: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let text = |name: &str| read(&format!("{}/{group}/{name}", files.root));
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let limit = files.limits.iter().filter_map(|name| number(name)).min()?;
    let counters = text("memory.stat").unwrap_or_default();
    let mut counters = counters.lines().filter_map(|line| line.split_once(' '));
    let dropped = counters.find(|(name, _)| *name == files.dropped).and_then(|(_, bytes)| bytes.trim().parse().ok());
    let usage = number(files.usage)?.saturating_sub(dropped.unwrap_or(0));
    Some(limit.saturating_sub(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal:       200 kB\nMemAvailable:   100 kB\n");

    /// What is free on a system of these files.
    fn found(files: &[(&str, &str)]) -> Option<u64> {
        available(&|path| {
            let path = path.replace("//", "/");
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn without_a_limit_all_of_the_machine_is_free() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[MACHINE]), Some(102_400));
        let unlimited = [
            MACHINE,
            ("/proc/self/cgroup", "0::/user\n"),
            ("/sys/fs/cgroup/user/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/memory.current", "50000\n"),
        ];
        assert_eq!(found(&unlimited), Some(102_400));
    }

    #[test]
    fn the_least_of_the_groups_around_counts() {
        let mut files = vec![
            MACHINE,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "90000\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "1000\n"),
            ("/sys/fs/cgroup/a/memory.max", "80000\n"),
            ("/sys/fs/cgroup/a/memory.current", "30000\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 20000\nfile 10000\ninactive_file 4000\n"),
        ];
        assert_eq!(found(&files), Some(54_000));
        files.push(("/sys/fs/cgroup/a/b/memory.high", "8000\n"));
        assert_eq!(found(&files), Some(7000));
        // A group may be above a limit that was lowered.
        files.push(("/sys/fs/cgroup/memory.max", "10\n"));
        files.push(("/sys/fs/cgroup/memory.current", "11\n"));
        assert_eq!(found(&files), Some(0));
    }

    #[test]
    fn containers_of_version_1_have_their_limit_at_the_top() {
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "5:cpu,cpuacct:/docker/id\n4:memory:/docker/id\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20000\n"),
            ("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\n"),
        ];
        assert_eq!(found(&files), Some(55_000));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells() {
        assert!(available_memory().is_some_and(|bytes| bytes > 0));
    }
}
