//! `make fuzz`: see `pyrklog_fuzz::Target::Reads`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyrklog_fuzz::Target::Reads.fuzz(data));
