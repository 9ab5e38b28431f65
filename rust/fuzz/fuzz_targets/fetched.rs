//! `make fuzz`: see `pyrklog_fuzz::Target::Fetched`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyrklog_fuzz::Target::Fetched.fuzz(data));
