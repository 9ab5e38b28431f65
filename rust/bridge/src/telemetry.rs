//! What client metrics need (KIP-714): expansion, patterns, a checksum.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyrklog_wire::batch::{self, Compression};
use regex_lite::{Regex, RegexBuilder};

use crate::errors;

/// Memory of one compiled pattern. Matching takes time in proportion to it.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// A regular expression that matches in linear time, whatever it is and whatever it is given.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct Pattern(Regex);

#[pymethods]
impl Pattern {
    #[new]
    fn new(text: &str) -> PyResult<Pattern> {
        // First alone: its parentheses must not pair with those that are added.
        compile(text)?;
        compile(&format!(r"\A(?:{text})\z")).map(Pattern)
    }

    fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

fn compile(text: &str) -> PyResult<Regex> {
    RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(errors::pattern)
}

/// `pyrklog_wire::batch::crc32c`.
#[pyfunction]
pub fn crc32c(bytes: &[u8]) -> u32 {
    batch::crc32c(bytes)
}

/// `pyrklog_compression::decompress`; `codec` as in the attributes of a batch.
#[pyfunction]
pub fn decompress<'py>(
    py: Python<'py>,
    codec: u8,
    body: &[u8],
    max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let codec = Compression::from_bits(codec).map_err(errors::codec)?;
    let mut out = Vec::new();
    py.detach(|| pyrklog_compression::decompress(codec, body, &mut out, max_bytes))
        .map_err(errors::decompress)?;
    Ok(PyBytes::new(py, &out))
}
