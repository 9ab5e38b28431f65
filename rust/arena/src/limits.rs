//! How much memory there is: of the machine, and of the memory group that the process is in.

use std::fs;
use std::path::{Path, PathBuf};

/// What may be used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The smaller of RAM and the memory group's limit.
    pub limit_bytes: u64,
    /// What is left below it; page cache counts as free, since the system gives it up.
    pub available_bytes: u64,
}

/// Reads `/proc/meminfo` and the memory group's files (version 1 or 2). What cannot be read counts
/// as unlimited, but for the machine's own memory, which then counts as none.
pub fn memory_limits() -> MemoryLimits {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = MemoryLimits {
        limit_bytes: meminfo_bytes(&meminfo, "MemTotal:"),
        available_bytes: meminfo_bytes(&meminfo, "MemAvailable:"),
    };
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let group = group_dirs(&groups, &mounts)
        .into_iter()
        .filter_map(|(dir, is_v2)| group_limits(&dir, is_v2))
        .min_by_key(|limits| limits.limit_bytes);
    match group {
        Some(group) if group.limit_bytes < machine.limit_bytes => MemoryLimits {
            limit_bytes: group.limit_bytes,
            available_bytes: group.available_bytes.min(machine.available_bytes),
        },
        _ => machine,
    }
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

fn group_limits(dir: &Path, is_v2: bool) -> Option<MemoryLimits> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let (limit, usage) = match is_v2 {
        true => (read("memory.max")?, read("memory.current")?),
        false => (
            read("memory.limit_in_bytes")?,
            read("memory.usage_in_bytes")?,
        ),
    };
    let limit_bytes = limit.trim().parse().unwrap_or(u64::MAX);
    let used_bytes: u64 = usage.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    // Clean and dirty page cache alike; shared memory is not among these.
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
        let limits = group_limits(dir.path(), true).unwrap();
        assert_eq!((limits.limit_bytes, limits.available_bytes), (1000, 400));
        write("memory.max", "max\n");
        let limits = group_limits(dir.path(), true).unwrap();
        assert_eq!(limits.limit_bytes, u64::MAX);
    }
}
