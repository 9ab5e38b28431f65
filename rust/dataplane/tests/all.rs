//! Tests of a plane through its socket and its seam.
//!
//! They are one program, since a program of each would take a second to build and nothing to run.
//! Those that need a process of their own have one beside it: `Cargo.toml` names them.

mod harness;

mod back_fill;
mod back_fill_compacted;
mod back_fill_sources;
mod bad_input;
mod broken_invariant;
mod broker_replies;
mod committed_reads;
mod compaction;
mod connection_quotas;
mod control;
mod doubt;
mod endings;
mod follower_reads;
mod following;
mod full_disk;
mod full_disk_closing;
mod heavy;
mod hostile;
mod internal_damage;
mod internal_loads;
mod internal_topics;
mod isolation;
mod kept_cache;
mod kept_cache_kills;
mod leadership;
mod long_poll;
mod many_followed;
mod markers;
mod memory;
mod move_disks;
mod move_failures;
mod move_kills;
mod move_lines;
mod moves;
mod moves_of_old_formats;
mod offset_commits;
mod old_clients;
mod older_copies;
mod partial;
mod produce_at;
mod reboot;
mod refused;
mod replica_digest;
mod round_trip;
mod session_changes;
mod sessions;
mod steering;
mod throttles;
mod verification;
