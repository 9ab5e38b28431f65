//! A log directory's statements about its arena, and about records it may lack.
//!
//! ```text
//! .pyrklog-arena     version, uuid, boot and path, one `name=value` a line; `unregistered` before path
//!                    from the creation of the arena to the broker's registration with the cluster;
//!                    version 2 and `kept` and `mark` before path after an orderly shutdown
//! .pyrklog-unclean   one line: when and why the directory may lack acknowledged records
//! ```
//!
//! A broker tells the cluster at its registration whether it has all its records. If it dies before
//! that, the next run finds an arena of the same boot, which says nothing about the time before the
//! arena. So `unregistered` preserves how the directory had been left: the broker epoch of an
//! orderly shutdown, or `none`.

use std::io;
use std::path::PathBuf;

use pyrklog_arena::Identity;

use crate::disk::{self, missing_is_fine};
use crate::log_dir::LogDir;

pub(super) const MARKER: &str = ".pyrklog-arena";
const UNCLEAN: &str = ".pyrklog-unclean";
const MARKER_BYTES_MAX: u64 = 64 * 1024;

/// Which arena belongs to a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaMarker {
    /// Its id, and the boot in which it was created.
    pub identity: Identity,
    /// Its file.
    pub path: PathBuf,
    /// Until a broker has registered with this arena: the broker epoch of the orderly shutdown
    /// before its creation, if there was one.
    pub unregistered: Option<Option<i64>>,
    /// An orderly shutdown left it for the next start; all its content is in the files as well.
    pub kept: Option<KeptMark>,
}

/// The state at an orderly shutdown that kept the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptMark {
    /// Milliseconds since the epoch.
    pub at_ms: i64,
    /// [`LogDir::clean_mark`] of this shutdown's mark.
    pub clean_mark: u64,
}

impl ArenaMarker {
    fn encode(&self) -> String {
        let unregistered = match self.unregistered {
            None => String::new(),
            Some(None) => "unregistered=none\n".to_owned(),
            Some(Some(epoch)) => format!("unregistered={epoch}\n"),
        };
        // A broker that does not know kept arenas refuses version 2 and creates its own arena.
        let (version, kept) = match self.kept {
            None => (1, String::new()),
            Some(kept) => (
                2,
                format!("kept={}\nmark={:016x}\n", kept.at_ms, kept.clean_mark),
            ),
        };
        format!(
            "version={version}\nuuid={}\nboot={}\n{unregistered}{kept}path={}\n",
            hex(&self.identity.uuid),
            hex(&self.identity.boot),
            self.path.display()
        )
    }

    /// Parses a marker; `None` if it is malformed.
    pub fn parse(content: &str) -> Option<ArenaMarker> {
        let field = |name: &str| {
            let mut lines = content.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        };
        let kept = match field("version")? {
            "1" => None,
            "2" => Some(KeptMark {
                at_ms: field("kept")?.parse().ok()?,
                clean_mark: u64::from_str_radix(field("mark")?, 16).ok()?,
            }),
            _ => return None,
        };
        Some(ArenaMarker {
            identity: Identity {
                uuid: parse_id(field("uuid")?)?,
                boot: parse_id(field("boot")?)?,
            },
            path: PathBuf::from(field("path")?),
            // A malformed value proves nothing.
            unregistered: field("unregistered").map(|text| text.parse().ok()),
            kept,
        })
    }
}

/// How a directory was left, for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The broker epoch of the orderly shutdown, if it was one.
    pub closed_at_epoch: Option<i64>,
    /// Whether its block cache was reattached within the same boot.
    pub is_reattached: bool,
}

/// 32 hexadecimal digits.
pub fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 32 hexadecimal digits, with or without hyphens.
pub fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let id = u128::from_str_radix(&digits, 16).ok()?;
    Some(id.to_be_bytes())
}

impl LogDir {
    /// The marker that an earlier run left.
    ///
    /// # Errors
    /// A disk error; `InvalidData` for a malformed marker.
    pub fn arena_marker(&self) -> io::Result<Option<ArenaMarker>> {
        let path = self.path.join(MARKER);
        let content = match disk::read_file(self.env.disk(), &path, MARKER_BYTES_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let content = String::from_utf8_lossy(&content);
        ArenaMarker::parse(&content).map(Some).ok_or_else(|| {
            let reason = format!("{} is malformed", path.display());
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })
    }

    /// Writes the marker durably.
    pub fn write_arena_marker(&self, marker: &ArenaMarker) -> io::Result<()> {
        let content = marker.encode();
        disk::replace_file(self.env.disk(), &self.path.join(MARKER), content.as_bytes())?;
        self.note_marker(marker);
        Ok(())
    }

    /// The directory uses the arena that its marker names.
    pub fn note_marker(&self, marker: &ArenaMarker) {
        let is_pending = marker.unregistered.is_some();
        *self.unregistered.lock() = is_pending.then(|| marker.clone());
    }

    /// How it was left before its arena was created, if no broker has registered since; else how
    /// its last run left it.
    pub fn left(&self) -> Left {
        match (&*self.unregistered.lock(), self.env.has_reattached_cache()) {
            (Some(marker), true) => Left {
                closed_at_epoch: marker.unregistered.flatten(),
                is_reattached: false,
            },
            (_, is_reattached) => Left {
                closed_at_epoch: self.clean_epoch,
                is_reattached,
            },
        }
    }

    /// Whether [`LogDir::registered`] has anything to write.
    pub fn is_unregistered(&self) -> bool {
        self.unregistered.lock().is_some()
    }

    /// The broker has registered and reported how the directory was left. Changes nothing on a disk
    /// error.
    pub fn registered(&self) -> io::Result<()> {
        let marker = self.unregistered.lock().clone();
        match marker {
            Some(marker) => self.write_arena_marker(&ArenaMarker {
                unregistered: None,
                ..marker
            }),
            None => Ok(()),
        }
    }

    /// Removes the marker durably.
    pub fn remove_arena_marker(&self) -> io::Result<()> {
        *self.unregistered.lock() = None;
        missing_is_fine(self.env.disk().remove_file(&self.path.join(MARKER)))?;
        self.env.disk().sync_dir(&self.path)
    }

    /// Records that the directory may lack acknowledged records, for the choice of leaders.
    pub fn record_unclean(&self, now_ms: i64, reason: &str) -> io::Result<()> {
        let content = format!("{now_ms} {reason}\n");
        disk::replace_file(
            self.env.disk(),
            &self.path.join(UNCLEAN),
            content.as_bytes(),
        )
    }

    /// Why the directory may lack acknowledged records, if so.
    pub fn unclean(&self) -> io::Result<Option<String>> {
        match disk::read_file(self.env.disk(), &self.path.join(UNCLEAN), MARKER_BYTES_MAX) {
            Ok(content) => Ok(Some(String::from_utf8_lossy(&content).trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_comes_back() {
        let marker = ArenaMarker {
            identity: Identity {
                uuid: [0xab; 16],
                boot: [1; 16],
            },
            path: "/dev/shm/x y.arena".into(),
            unregistered: None,
            kept: None,
        };
        let kept = ArenaMarker {
            kept: Some(KeptMark {
                at_ms: 1_700_000_000_000,
                clean_mark: u64::MAX - 1,
            }),
            ..marker.clone()
        };
        assert_eq!(ArenaMarker::parse(&kept.encode()), Some(kept.clone()));
        assert!(kept.encode().starts_with("version=2\n"));
        for unregistered in [None, Some(None), Some(Some(-1)), Some(Some(77))] {
            let marker = ArenaMarker {
                unregistered,
                ..marker.clone()
            };
            assert_eq!(ArenaMarker::parse(&marker.encode()), Some(marker));
        }
        let text = marker.encode();
        for cut in 0..text.len() - 1 {
            // A shortened path cannot be recognised.
            if cut < text.find("path=").unwrap() {
                assert_eq!(ArenaMarker::parse(&text[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn an_id_is_read_with_and_without_hyphens() {
        let plain = parse_id("0123456789abcdef0123456789abcdef");
        assert_eq!(plain, parse_id("01234567-89ab-cdef-0123-456789abcdef\n"));
        assert_eq!(
            plain.map(|id| hex(&id)).as_deref(),
            Some("0123456789abcdef0123456789abcdef")
        );
        assert_eq!(parse_id("+123456789abcdef0123456789abcdef"), None);
        assert_eq!(parse_id(""), None);
    }
}
