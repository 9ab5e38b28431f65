//! How far the system reads ahead by itself, and what is asked of it where that is too little.

use std::collections::HashMap;
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;

use parking_lot::Mutex;
use rustix::fs::{Advice, major, minor};

/// From here on the system's own read-ahead keeps a disk busy. It costs a tenth of the CPU that asking
/// for the same bytes costs: it fetches them in large pages.
const FAR_BYTES: u64 = 2 << 20;

/// What one call asks for; the system cuts what is longer than its own read-ahead.
const STEP_BYTES: u64 = 128 << 10;

/// By device.
static AHEAD_BYTES: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

/// Whether the system's own read-ahead suffices for a file that is read from front to back.
pub fn is_far(file: &File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let device = metadata.dev();
    let mut known = AHEAD_BYTES.lock();
    let known = known.get_or_insert_default();
    *known.entry(device).or_insert_with(|| ahead_bytes(device)) >= FAR_BYTES
}

/// Of a device, 0 if it does not say.
fn ahead_bytes(device: u64) -> u64 {
    let name = format!("{}:{}", major(device), minor(device));
    // A partition has what its disk has.
    let paths = [
        format!("/sys/class/bdi/{name}/read_ahead_kb"),
        format!("/sys/dev/block/{name}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{name}/../queue/read_ahead_kb"),
    ];
    let found = paths.iter().find_map(|path| fs::read_to_string(path).ok());
    let kib = found.and_then(|text| text.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Asks for bytes, in pieces that the system does not cut.
pub fn fetch(file: &File, position: u64, len: u64) {
    let end = position + len;
    let mut at = position;
    while at < end {
        let step = STEP_BYTES.min(end - at);
        // A hint: a file system that ignores or refuses it changes nothing for the reader.
        let _refused = rustix::fs::fadvise(file, at, NonZeroU64::new(step), Advice::WillNeed);
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_says_how_far_and_what_is_no_device_counts_as_near() {
        let blocks = fs::read_dir("/sys/class/bdi").unwrap();
        for block in blocks {
            let name = block.unwrap().file_name().into_string().unwrap();
            let Some((major, minor)) = name.split_once(':') else {
                continue;
            };
            let device = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
            let path = format!("/sys/class/bdi/{name}/read_ahead_kb");
            let kib: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
            assert_eq!(ahead_bytes(device), kib * 1024, "{name}");
        }
        assert_eq!(ahead_bytes(rustix::fs::makedev(4_000, 4_000)), 0);
    }
}
