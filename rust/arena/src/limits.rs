//! How much memory there is: of the machine, and of the process's memory group.

use std::fs;
use std::path::{Path, PathBuf};

/// Usable memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The smaller of RAM and the memory group's limit.
    pub limit_bytes: u64,
    /// What is left below it; page cache counts as free, since the system gives it up.
    pub available_bytes: u64,
}

/// One reading of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// How much there is.
    pub limits: MemoryLimits,
    /// Total time that any task waited for memory, in microseconds; `None` where the kernel does
    /// not tell (pressure stall information, Linux 4.20).
    pub stalled_us: Option<u64>,
}

/// Reads `/proc/meminfo` and the files of the process's memory groups (version 1 or 2), which are
/// looked for once. What cannot be read counts as unlimited, except the machine's own memory, which
/// then counts as none.
#[derive(Debug)]
pub struct MemoryMeter {
    meminfo: PathBuf,
    /// (directory, version 2): the process's own group, then those above it.
    groups: Vec<(PathBuf, bool)>,
    pressure: Vec<PathBuf>,
}

impl Default for MemoryMeter {
    fn default() -> MemoryMeter {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        MemoryMeter::new(Path::new("/proc"), group_dirs(&groups, &mounts))
    }
}

impl MemoryMeter {
    /// Takes a `/proc` and the directories of memory groups (true: version 2), the innermost first.
    pub fn new(proc: &Path, groups: Vec<(PathBuf, bool)>) -> MemoryMeter {
        let of_group = groups.iter().filter(|(_, is_v2)| *is_v2).take(1);
        let of_group = of_group.map(|(dir, _)| dir.join("memory.pressure"));
        let of_machine = proc.join("pressure/memory");
        MemoryMeter {
            meminfo: proc.join("meminfo"),
            pressure: of_group.chain([of_machine]).collect(),
            groups,
        }
    }

    /// Reads now.
    pub fn read(&self) -> MemoryReading {
        let meminfo = fs::read_to_string(&self.meminfo).unwrap_or_default();
        let mut limits = MemoryLimits {
            limit_bytes: meminfo_bytes(&meminfo, "MemTotal:"),
            available_bytes: meminfo_bytes(&meminfo, "MemAvailable:"),
        };
        let machine_bytes = limits.limit_bytes;
        for (dir, is_v2) in &self.groups {
            let Some(group) = group_limits(dir, *is_v2, machine_bytes) else {
                continue;
            };
            limits.limit_bytes = limits.limit_bytes.min(group.limit_bytes);
            limits.available_bytes = limits.available_bytes.min(group.available_bytes);
        }
        let stalled = |path: &PathBuf| stalled_us(&fs::read_to_string(path).ok()?);
        MemoryReading {
            limits,
            stalled_us: self.pressure.iter().find_map(stalled),
        }
    }
}

/// The limits now; see [`MemoryMeter`].
pub fn memory_limits() -> MemoryLimits {
    MemoryMeter::default().read().limits
}

/// The total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn stalled_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let total = some
        .split_whitespace()
        .find_map(|word| word.strip_prefix("total="));
    total?.parse().ok()
}

fn meminfo_bytes(meminfo: &str, field: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The directories of the process's memory group and of those above it: a limit of any of them
/// holds.
fn group_dirs(groups: &str, mounts: &str) -> Vec<(PathBuf, bool)> {
    let mut dirs = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some((root, mount)) = mount_of(mounts, is_v2) else {
            continue;
        };
        let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
        let mut dir = mount.join(inside.trim_start_matches('/'));
        while dir.starts_with(&mount) {
            dirs.push((dir.clone(), is_v2));
            if !dir.pop() {
                break;
            }
        }
    }
    dirs
}

/// (root within the file system, mount point) of the memory groups.
fn mount_of(mounts: &str, is_v2: bool) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut kind = right.split_whitespace();
        let file_system = kind.next()?;
        let options = kind.nth(1).unwrap_or_default();
        let fits = match is_v2 {
            true => file_system == "cgroup2",
            false => file_system == "cgroup" && options.split(',').any(|o| o == "memory"),
        };
        let mut fields = left.split_whitespace().skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        fits.then(|| (root.to_owned(), PathBuf::from(mount)))
    })
}

/// `None` where the group has no limit below `least_bytes`.
fn group_limits(dir: &Path, is_v2: bool, least_bytes: u64) -> Option<MemoryLimits> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let (limit, usage) = match is_v2 {
        true => ("memory.max", "memory.current"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    };
    let limit_bytes = read(limit)?.trim().parse().unwrap_or(u64::MAX);
    if limit_bytes >= least_bytes {
        return None;
    }
    let used_bytes: u64 = read(usage)?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    // Clean and dirty page cache; shared memory is not included.
    let cache_bytes = match is_v2 {
        true => field("active_file ").unwrap_or(0) + field("inactive_file ").unwrap_or(0),
        false => {
            field("total_active_file ").unwrap_or(0) + field("total_inactive_file ").unwrap_or(0)
        }
    };
    Some(MemoryLimits {
        limit_bytes,
        available_bytes: limit_bytes.saturating_sub(used_bytes.saturating_sub(cache_bytes)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        let limits = memory_limits();
        assert!(limits.limit_bytes > 64 << 20, "{limits:?}");
        assert!(limits.available_bytes <= limits.limit_bytes, "{limits:?}");
    }

    #[test]
    fn groups_of_both_versions_are_found_with_those_above() {
        let mounts = "35 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let v1 = group_dirs("9:memory:/a/b\n3:cpu:/x\n", mounts);
        let dirs: Vec<_> = v1.iter().map(|(dir, _)| dir.to_str().unwrap()).collect();
        let base = "/sys/fs/cgroup/memory";
        let expected = [format!("{base}/a/b"), format!("{base}/a"), base.to_owned()];
        assert_eq!(dirs, expected);
        let v2 = group_dirs("0::/service\n", mounts);
        assert_eq!(
            v2[0],
            (PathBuf::from("/sys/fs/cgroup/unified/service"), true)
        );
    }

    #[test]
    fn in_a_container_the_groups_root_is_the_mount() {
        let mounts = "35 24 0:30 /docker/1234 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let dirs = group_dirs("0::/docker/1234\n", mounts);
        assert_eq!(dirs, [(PathBuf::from("/sys/fs/cgroup"), true)]);
    }

    #[test]
    fn page_cache_counts_as_free() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| fs::write(dir.path().join(name), content).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write(
            "memory.stat",
            "anon 300\nactive_file 200\ninactive_file 100\n",
        );
        let limits = group_limits(dir.path(), true, 5000).unwrap();
        assert_eq!((limits.limit_bytes, limits.available_bytes), (1000, 400));
        write("memory.max", "max\n");
        assert_eq!(group_limits(dir.path(), true, 5000), None);
    }

    #[test]
    fn the_smallest_of_machine_and_groups_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
        let groups = vec![
            (dir.path().join("a/b"), false),
            (dir.path().join("a"), false),
        ];
        let meter = MemoryMeter::new(&dir.path().join("proc"), groups.clone());
        let limits = |limit_kib: u64, available_kib: u64| MemoryLimits {
            limit_bytes: limit_kib << 10,
            available_bytes: available_kib << 10,
        };
        let alone = MemoryReading {
            limits: limits(1000, 500),
            stalled_us: None,
        };
        assert_eq!(meter.read(), alone, "no group, no pressure");
        write("a/b/memory.limit_in_bytes", "819200\n");
        write("a/b/memory.usage_in_bytes", "409600\n");
        write(
            "a/b/memory.stat",
            "total_active_file 51200\ntotal_inactive_file 51200\n",
        );
        assert_eq!(
            meter.read().limits,
            limits(800, 500),
            "800 - 400 + 100 is no less"
        );
        // The group above has less left, though its limit is higher.
        write("a/memory.limit_in_bytes", "921600\n");
        write("a/memory.usage_in_bytes", "900000\n");
        let left = MemoryLimits {
            limit_bytes: 800 << 10,
            available_bytes: 921_600 - 900_000,
        };
        assert_eq!(meter.read().limits, left);
        write(
            "proc/pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0 total=9\n",
        );
        assert_eq!(meter.read().stalled_us, Some(1234));
    }
}
